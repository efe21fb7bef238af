#include "shale/bindings/c/call.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <vector>

#include "shale/base/error.h"
#include "shale/base/failure.h"
#include "shale/base/log.h"
#include "shale/base/parse.h"
#include "shale/bindings/c/session.h"
#include "shale/comm/watch/failure_board.h"

namespace shale::c {
namespace {

using Work = std::function<void()>;

// State of API calls, and work that is deferred to their end. It is never destroyed, because the
// program's own objects may release memory while the process ends.
struct State {
  std::recursive_mutex calls;  // recursive, because callbacks make calls
  int depth = 0;               // number of nested calls; protected by `calls`
  std::vector<Work> after;  // run after the outermost call, without the lock; protected by `calls`
  std::mutex queue;
  std::vector<Work> queued;  // to run at the end of a call, with the lock; protected by `queue`
};

State& state() {
  static State& state = *std::make_unique<State>().release();
  return state;
}

bool queue_is_empty() {
  const std::lock_guard lock(state().queue);
  return state().queued.empty();
}

void run_logged(const Work& work) noexcept {
  try {
    work();
  } catch (const std::exception& error) {
    log_error("shale: at the end of a call: ", error.what());
  }
}

// Ends one nested call. The outermost one runs the deferred work: `queued` with the lock, then
// `after` without it.
void leave() noexcept {
  State& s = state();
  for (;;) {
    std::vector<Work> after;
    if (s.depth == 1) {
      std::vector<Work> queued;
      {
        const std::lock_guard lock(s.queue);
        queued.swap(s.queued);
      }
      for (const Work& work : queued) run_logged(work);
      after.swap(s.after);
    }
    --s.depth;
    const bool outermost = s.depth == 0;
    s.calls.unlock();
    for (const Work& work : after) run_logged(work);
    // Runs work that was queued in the meantime, while this thread held the lock.
    if (!outermost || queue_is_empty() || !s.calls.try_lock()) return;
    ++s.depth;
  }
}

class Scope {
 public:
  Scope() {
    state().calls.lock();
    ++state().depth;
  }
  ~Scope() { leave(); }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
};

std::string& error_text() {
  thread_local std::string text;
  return text;
}

std::exception_ptr& peer_failure() {
  thread_local std::exception_ptr error;
  return error;
}

struct Problem {
  shale_status status = SHALE_ERROR_INTERNAL;
  std::string text;
  bool is_peers = false;  // true: another rank's failure caused this one
};

Problem problem_of(std::exception_ptr error) {
  try {
    std::rethrow_exception(error);
  } catch (const CallError& e) {
    return {e.status(), e.what()};
  } catch (const comm::PeerFailure& e) {
    return {SHALE_ERROR_COMM, e.what(), /*is_peers=*/true};
  } catch (const ShapeError& e) {
    return {SHALE_ERROR_ARGUMENT, e.what()};
  } catch (const DTypeError& e) {
    return {SHALE_ERROR_ARGUMENT, e.what()};
  } catch (const AutogradError& e) {
    return {SHALE_ERROR_ARGUMENT, e.what()};
  } catch (...) {
    const Failure failure = failure_of(error);
    return {static_cast<shale_status>(failure.code), failure.message};
  }
}

shale_status report(std::string_view name, std::exception_ptr error) noexcept {
  try {
    const Problem problem = problem_of(error);
    peer_failure() = problem.is_peers ? error : nullptr;
    error_text() = cat(name, ": ", problem.text, rank_text());
    return problem.status;
  } catch (...) {
    return SHALE_ERROR_MEMORY;  // there is no memory for the text either
  }
}

// Returns the field `size` of an options struct, its first field.
size_t size_of(const void* given) {
  size_t size = 0;
  std::memcpy(&size, given, sizeof(size));
  return size;
}

constexpr size_t kMostBytes = 4096;  // maximum size of a struct; a larger size is an error

size_t checked_size(const void* given, std::string_view argument) {
  const size_t size = size_of(given);
  if (size < sizeof(size_t) || size > kMostBytes) {
    fail_argument(argument, "->size is ", size, "; initialize the struct with its SHALE_..._INIT");
  }
  return size;
}

}  // namespace

shale_status call(std::string_view name, const std::function<void()>& body) noexcept {
  try {
    const Scope scope;
    try {
      check_process();
      body();
      return SHALE_OK;
    } catch (...) {
      return report(name, std::current_exception());
    }
  } catch (...) {  // thrown by the lock
    return SHALE_ERROR_INTERNAL;
  }
}

void check_not_in_callback() {
  if (state().depth == 1) return;
  throw CallError(SHALE_ERROR_STATE,
                  "called inside the body of shale_module_run(), expected after its end");
}

double checked_number(double value, std::string_view argument, double least) {
  if (!std::isfinite(value) || value < least) {
    fail_argument(argument, " is ", value, ", expected a finite number",
                  std::isfinite(least) ? cat(", ", least, " or more") : "");
  }
  return value;
}

std::string checked_path(const char* path, std::string_view argument) {
  const std::string_view text = wanted(path, argument);
  const auto is_control = [](unsigned char c) { return c < 0x20 || c == 0x7f; };
  if (text.empty() || std::any_of(text.begin(), text.end(), is_control)) {
    fail_argument(argument, " is \"", excerpt(text),
                  "\", expected a path: not empty, and without control characters");
  }
  return std::string(text);
}

const char* last_error() noexcept {
  try {
    return error_text().c_str();
  } catch (...) {
    return "out of memory";
  }
}

void forget_last_error() noexcept {
  error_text().clear();
}

std::exception_ptr last_peer_failure() noexcept {
  return peer_failure();
}

void after_call(std::function<void()> work) {
  state().after.push_back(std::move(work));
}

void in_some_call(std::function<void()> work) noexcept {
  State& s = state();
  try {
    const std::lock_guard lock(s.queue);
    s.queued.push_back(std::move(work));
  } catch (...) {
    return;  // out of memory: the object is leaked
  }
  if (!s.calls.try_lock()) return;
  ++s.depth;
  leave();
}

void copy_options(const void* given, void* to, size_t known, std::string_view argument) {
  const size_t size = checked_size(given, argument);
  const auto* bytes = static_cast<const unsigned char*>(given);
  for (size_t i = known; i < size; ++i) {
    if (bytes[i] != 0) {
      fail_argument(argument,
                    " requests a feature of a later interface version; this library has version ",
                    SHALE_API_MAJOR, ".", SHALE_API_MINOR);
    }
  }
  std::memcpy(to, given, std::min(size, known));
  std::memcpy(to, &known, sizeof(known));
}

void copy_result(const void* result, void* out, size_t known, std::string_view argument) {
  const size_t size = checked_size(out, argument);
  std::memcpy(out, result, std::min(size, known));
  std::memcpy(out, &size, sizeof(size));
}

void give_text(std::string_view text, char* out, size_t capacity, std::string_view argument) {
  wanted(out, argument);
  if (text.size() >= capacity) {
    fail_argument(argument, " has room for ", capacity, " bytes, expected ", text.size() + 1);
  }
  std::memcpy(out, text.data(), text.size());
  out[text.size()] = '\0';
}

}  // namespace shale::c
