// A race that the preset tsan has to report: what a queued job writes is read before its end.
#include "shale/comm/comm_queue.h"

int main() {
  shale::comm::CommQueue queue;
  int value = 0;
  const auto work = queue.enqueue([&](bool) { value = 1; }, nullptr);
  const int early = value;
  work.wait();
  return early;
}
