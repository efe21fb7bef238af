#include "shale/models/training/stop_signals.h"

#include <atomic>
#include <csignal>
#include <cstring>
#include <thread>

#include "shale/base/error.h"

namespace shale::models {
namespace {

std::atomic<int> first_signal{0};

sigset_t requests() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGTERM, SIGUSR1, SIGUSR2, SIGINT}) sigaddset(&set, signal);
  return set;
}

// Ends the process as the signal would end it without a handler.
void end_by(int signal) {
  std::signal(signal, SIG_DFL);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, signal);
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
  std::raise(signal);
}

void wait_for_requests() {
  const sigset_t set = requests();
  int interrupts = 0;
  for (;;) {
    int signal = 0, none = 0;
    if (sigwait(&set, &signal) != 0) continue;
    first_signal.compare_exchange_strong(none, signal);
    // A second SIGINT ends the process immediately.
    if (signal == SIGINT && ++interrupts == 2) end_by(SIGINT);
  }
}

}  // namespace

StopSignals::StopSignals() {
  for (const int signal : {SIGXFSZ, SIGPIPE}) std::signal(signal, SIG_IGN);
  const sigset_t set = requests();
  if (const int error = pthread_sigmask(SIG_BLOCK, &set, nullptr); error != 0) {
    throw InternalError(cat("pthread_sigmask: ", std::strerror(error)));
  }
  std::thread(wait_for_requests).detach();
}

int StopSignals::received() {
  return first_signal.load();
}

}  // namespace shale::models
