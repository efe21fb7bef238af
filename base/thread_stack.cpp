#include "shale/base/thread_stack.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <pthread.h>
#include <signal.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>

#include "shale/base/error.h"

namespace shale {
namespace {

// Results of the signal handler, which can only access globals.
constexpr int kMaxFrames = 48;
std::array<void*, kMaxFrames> frames;
std::atomic<int> frame_count{0};  // -1: a sample is requested

// Stack of the signal handler, for the processor's state (11 KiB with AMX) and the stack walk.
alignas(64) std::array<std::byte, 128 << 10> signal_stack;

int sample_signal() {
  return SIGRTMAX - 3;
}

// Signal handler. It neither allocates nor takes a lock: the constructor has run backtrace()'s
// one-time initialisation, and glibc finds shared objects without a lock since 2.35.
void take_sample(int) {
  const int saved = errno;
  if (frame_count.load(std::memory_order_acquire) == -1) {
    frame_count.store(backtrace(frames.data(), kMaxFrames), std::memory_order_release);
  }
  errno = saved;
}

std::string name_of(const void* address) {
  Dl_info info{};
  if (dladdr(address, &info) == 0 || info.dli_fname == nullptr) return "?";
  if (info.dli_sname != nullptr) {
    int status = 0;
    const std::unique_ptr<char, decltype(&std::free)> readable(
        abi::__cxa_demangle(info.dli_sname, nullptr, nullptr, &status), &std::free);
    return status == 0 ? readable.get() : info.dli_sname;
  }
  const char* const slash = std::strrchr(info.dli_fname, '/');
  std::array<char, 24> offset{};
  std::snprintf(
      offset.data(), offset.size(), "+0x%zx",
      static_cast<size_t>(static_cast<const char*>(address) - static_cast<char*>(info.dli_fbase)));
  return cat(slash != nullptr ? slash + 1 : info.dli_fname, offset.data());
}

}  // namespace

ThreadStack::ThreadStack() : thread_(pthread_self()) {
  std::array<void*, 2> warm_up{};
  backtrace(warm_up.data(), static_cast<int>(warm_up.size()));  // the first call loads libraries
  stack_t before{};
  sigaltstack(nullptr, &before);
  owns_signal_stack_ = (before.ss_flags & SS_DISABLE) != 0;
  if (owns_signal_stack_) {
    const stack_t own{.ss_sp = signal_stack.data(), .ss_flags = 0, .ss_size = signal_stack.size()};
    if (sigaltstack(&own, nullptr) != 0) {
      throw InternalError(cat("sigaltstack: ", std::strerror(errno)));
    }
  }
  struct sigaction action {};
  action.sa_handler = take_sample;
  action.sa_flags = SA_RESTART | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  if (sigaction(sample_signal(), &action, nullptr) != 0) {
    throw InternalError(cat("sigaction: ", std::strerror(errno)));
  }
}

ThreadStack::~ThreadStack() {
  signal(sample_signal(), SIG_IGN);  // a signal that arrives later must not end the process
  const stack_t none{.ss_sp = nullptr, .ss_flags = SS_DISABLE, .ss_size = 0};
  if (owns_signal_stack_ && pthread_equal(pthread_self(), thread_) != 0) {
    sigaltstack(&none, nullptr);
  }
}

std::vector<std::string> ThreadStack::sample() const {
  frame_count.store(-1, std::memory_order_release);
  if (pthread_kill(thread_, sample_signal()) != 0) return {};
  const auto start = std::chrono::steady_clock::now();
  int count = -1;
  while (count == -1 && std::chrono::steady_clock::now() - start < std::chrono::milliseconds(500)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    count = frame_count.load(std::memory_order_acquire);
  }
  std::vector<std::string> names;
  // The first frames are the handler itself and the kernel's signal return.
  constexpr int kOfTheSignal = 2;
  for (int i = kOfTheSignal; i < count; ++i) {
    // All frames but the innermost are return addresses, one past the call.
    const auto* address = static_cast<const char*>(frames[static_cast<size_t>(i)]);
    names.push_back(name_of(i == kOfTheSignal ? address : address - 1));
  }
  return names;
}

}  // namespace shale
