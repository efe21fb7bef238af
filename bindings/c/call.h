#pragma once

#include <exception>
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>

#include "shale/base/text.h"
#include "shale/c.h"

namespace shale::c {

// Misuse of a call, with the status that it returns.
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
// A number that has to be finite and at least so much: "eps is nan, expected ...".
double checked_number(double value, std::string_view argument, double least);
// A path as training programs take it: not empty, without control characters.
std::string checked_path(const char* path, std::string_view argument);
template <typename T>
T* wanted(T* pointer, std::string_view argument) {
  if (pointer == nullptr) fail_argument(argument, " is NULL");
  return pointer;
}

// Runs what a function of the interface does, while no other does anything. Exceptions become the
// status that is returned, and the text of shale_last_error(), which begins with `name`.
shale_status call(std::string_view name, const std::function<void()>& body) noexcept;

// Inside a call: throws SHALE_ERROR_STATE if a function of the program's made it, which a call runs
// that goes on afterwards.
void check_not_in_callback();

// The text of shale_last_error() on this thread.
const char* last_error() noexcept;
void forget_last_error() noexcept;
// Of this thread's last call that failed, if it failed because another rank had; else null.
std::exception_ptr last_peer_failure() noexcept;

// Inside a call: does this when the thread's outermost call has let others in again. So callbacks
// of the program may wait for a lock of its own whose holder waits for a call.
void after_call(std::function<void()> work);
// From any thread, whatever locks it holds: does this as if in a call, now if no other call is
// under way, else at the end of that one.
void in_some_call(std::function<void()> work) noexcept;

// A struct of the program's, which may be of an older or a newer header: what it has over the
// defaults.
template <typename T>
T options_of(const T* given, const T& defaults, std::string_view argument);

// Gives a struct of results, as much of it as the program's header has.
template <typename T>
void give(const T& result, T* out, std::string_view argument);

// The parts of these that need no type. `size` is the field at the head of the struct.
void copy_options(const void* given, void* to, size_t known, std::string_view argument);
void copy_result(const void* result, void* out, size_t known, std::string_view argument);
// Copies a text with its NUL. Throws if there is no room.
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
