#include "shale/models/training/stop_signals.h"

#include <atomic>
#include <cerrno>
#include <cstring>

#include "shale/base/error.h"

namespace shale::models {
namespace {

// A signal handler reaches nothing but globals.
std::atomic<int> first_signal{0};
static_assert(std::atomic<int>::is_always_lock_free);

void remember(int signal) {
  int none = 0;
  first_signal.compare_exchange_strong(none, signal);
}

}  // namespace

StopSignals::StopSignals() {
  first_signal = 0;
  for (const int signal : {SIGTERM, SIGUSR1, SIGINT}) {
    struct sigaction action {};
    action.sa_handler = remember;
    // Whoever presses the keys twice means it.
    action.sa_flags = SA_RESTART | (signal == SIGINT ? static_cast<int>(SA_RESETHAND) : 0);
    sigemptyset(&action.sa_mask);
    Installed installed{.signal = signal, .before = {}};
    if (sigaction(signal, &action, &installed.before) != 0) {
      throw InternalError(cat("sigaction: ", std::strerror(errno)));
    }
    installed_.push_back(installed);
  }
}

StopSignals::~StopSignals() {
  for (const Installed& installed : installed_) {
    sigaction(installed.signal, &installed.before, nullptr);
  }
}

int StopSignals::received() {
  return first_signal.load();
}

}  // namespace shale::models
