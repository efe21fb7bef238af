#pragma once

#include <exception>
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>

#include "shale/base/text.h"
#include "shale/c.h"

namespace shale::c {

// Thrown for an incorrect call, with the status to return.
class CallError : public std::runtime_error {
 public:
  CallError(shale_status status, const std::string& message)
      : std::runtime_error(message), status_(status) {}
  shale_status status() const { return status_; }

 private:
  shale_status status_;
};

template <typename... Args>
[[noreturn]] void fail_argument(const Args&... args) {
  throw CallError(SHALE_ERROR_ARGUMENT, cat(args...));
}
// Checks that a number is finite and at least `least`: "eps is nan, expected ...".
double checked_number(double value, std::string_view argument, double least);
// Returns the path. Throws if it is empty or has control characters, as training programs do.
std::string checked_path(const char* path, std::string_view argument);
template <typename T>
T* wanted(T* pointer, std::string_view argument) {
  if (pointer == nullptr) fail_argument(argument, " is NULL");
  return pointer;
}

// Runs `body`, the body of the API function `name`, while no other one runs. Converts an exception
// to the returned status and to the text of shale_last_error(), which begins with `name`.
shale_status call(std::string_view name, const std::function<void()>& body) noexcept;

// For use inside a call. Throws SHALE_ERROR_STATE if a callback of the program made the call,
// because an outer call would continue afterwards.
void check_not_in_callback();

// Returns the text of shale_last_error() on this thread.
const char* last_error() noexcept;
void forget_last_error() noexcept;
// Returns the exception of this thread's last failed call if another rank's failure caused it;
// otherwise null.
std::exception_ptr last_peer_failure() noexcept;

// For use inside a call. Defers work until this thread's outermost call has released the lock. A
// callback of the program may then wait for a lock whose holder waits for a call.
void after_call(std::function<void()> work);
// Runs work as part of a call: now if no call is running, otherwise at the end of the running one.
// May be called on any thread, with any locks held.
void in_some_call(std::function<void()> work) noexcept;

// Reads an options struct of the program, which may have been compiled with an older or newer
// header. Fields that the struct does not have get the defaults.
template <typename T>
T options_of(const T* given, const T& defaults, std::string_view argument);

// Writes a struct of results, but only the fields that the program's header has.
template <typename T>
void give(const T& result, T* out, std::string_view argument);

// Implementations of options_of() and give(). The first field of each struct is its size.
void copy_options(const void* given, void* to, size_t known, std::string_view argument);
void copy_result(const void* result, void* out, size_t known, std::string_view argument);
// Copies a text with its final NUL to the program's buffer. Throws if the buffer is too small.
void give_text(std::string_view text, char* out, size_t capacity, std::string_view argument);

template <typename T>
T options_of(const T* given, const T& defaults, std::string_view argument) {
  T options = defaults;
  if (given != nullptr) copy_options(given, &options, sizeof(T), argument);
  return options;
}

template <typename T>
void give(const T& result, T* out, std::string_view argument) {
  copy_result(&result, wanted(out, argument), sizeof(T), argument);
}

}  // namespace shale::c
