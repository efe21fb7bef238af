#include "shale/comm/hosts/heartbeats.h"

#include <algorithm>
#include <chrono>
#include <thread>

namespace shale::comm {
namespace {

// Interval at which the watchdog calls set_longest_silence(), so that the value may be this old.
constexpr double kLook_s = 0.2;

}  // namespace

void Heartbeats::set_longest_silence(double seconds) {
  longest_silence_s_.store(seconds);
}

void Heartbeats::end() {
  longest_silence_s_.store(-1);
}

void Heartbeats::set_starting(double seconds) {
  start_s_.store(seconds);
}

void Heartbeats::set_started() {
  start_s_.store(-1);
}

double Heartbeats::limit(double timeout_s) const {
  const double start_s = start_s_.load();
  return timeout_s == 0 || start_s == 0 ? 0 : std::max(timeout_s, start_s);
}

void Heartbeats::wait_for_all(const std::function<void()>& poll) {
  struct Waiting {
    std::atomic<int>& count;
    explicit Waiting(std::atomic<int>& c) : count(c) { count.fetch_add(1); }
    ~Waiting() { count.fetch_sub(1); }
  };
  const Waiting waiting(waits_);
  const auto start = std::chrono::steady_clock::now();
  for (;;) {
    if (poll) poll();
    const double silence_s = longest_silence_s_.load();
    const std::chrono::duration<double> asked = std::chrono::steady_clock::now() - start;
    if (silence_s < 0 || silence_s + kLook_s < asked.count()) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

}  // namespace shale::comm
