#pragma once

#include <exception>
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>

#include "shale/base/text.h"
#include "shale/c.h"

namespace shale::c {

// Incorrect call, with the status to return.
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
// Checks a path, as training programs do: not empty, without control characters.
std::string checked_path(const char* path, std::string_view argument);
template <typename T>
T* wanted(T* pointer, std::string_view argument) {
  if (pointer == nullptr) fail_argument(argument, " is NULL");
  return pointer;
}

// Runs the body of an interface function while no other one runs. Exceptions become the returned
// status and the text of shale_last_error(), which begins with `name`.
shale_status call(std::string_view name, const std::function<void()>& body) noexcept;

// Inside a call: throws SHALE_ERROR_STATE if the call was made by a callback of the program, inside
// another call that continues afterwards.
void check_not_in_callback();

// Returns the text of shale_last_error() on this thread.
const char* last_error() noexcept;
void forget_last_error() noexcept;
// Returns the exception of this thread's last failed call if another rank's failure caused it; else
// null.
std::exception_ptr last_peer_failure() noexcept;

// Inside a call: defers work until the thread's outermost call has released the lock. So callbacks
// of the program may wait for a lock whose holder waits for a call.
void after_call(std::function<void()> work);
// From any thread, with any locks held: runs work as if in a call, now if there is no other call,
// else at the end of that one.
void in_some_call(std::function<void()> work) noexcept;

// Reads a struct of the program, which may come from an older or newer header; missing fields have
// the defaults.
template <typename T>
T options_of(const T* given, const T& defaults, std::string_view argument);

// Writes a struct of results, up to the size in the program's header.
template <typename T>
void give(const T& result, T* out, std::string_view argument);

// Untyped parts of the functions above. `size` is the first field of the struct.
void copy_options(const void* given, void* to, size_t known, std::string_view argument);
void copy_result(const void* result, void* out, size_t known, std::string_view argument);
// Copies a text with its NUL. Throws if the buffer is too small.
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
