// A race that the preset tsan must report: the program reads what a queued job writes before the
// job has ended.
#include "shale/comm/comm_queue.h"

int main() {
  shale::comm::CommQueue queue;
  int value = 0;
  const auto work = queue.enqueue([&](bool) { value = 1; }, nullptr);
  const int early = value;
  work.wait();
  return early;
}
