#include "shale/models/training/stop_signals.h"

#include <atomic>
#include <cerrno>
#include <csignal>
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

void handle(int signal, void (*handler)(int), int flags) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = flags;
  sigemptyset(&action.sa_mask);
  if (sigaction(signal, &action, nullptr) != 0) {
    throw InternalError(cat("sigaction: ", std::strerror(errno)));
  }
}

}  // namespace

StopSignals::StopSignals() {
  first_signal = 0;
  for (const int signal : {SIGTERM, SIGUSR1}) handle(signal, remember, SA_RESTART);
  // Whoever presses the keys twice means it.
  handle(SIGINT, remember, SA_RESTART | static_cast<int>(SA_RESETHAND));
  for (const int signal : {SIGXFSZ, SIGPIPE}) handle(signal, SIG_IGN, 0);
}

int StopSignals::received() {
  return first_signal.load();
}

}  // namespace shale::models
