#pragma once

#include <exception>
#include <string>
#include <string_view>

#include "shale/base/error.h"

namespace shale {

// The exit code and message of a program that ends with an exception.
struct Failure {
  ExitCode code = ExitCode::kInternal;
  std::string message;
};

// Returns the exit code and message of an exception. An Error has its own code. A file error of the
// standard library is kMissingInput if no file has that name, otherwise kDisk; its message begins
// with the path. Out of memory or threads is kOutOfMemory; any other exception is kInternal.
Failure failure_of(std::exception_ptr error);

// Returns the message with control characters escaped by printable(). Only newlines before two
// spaces (table rows) stay as they are. Text that is quoted in a message can therefore not look
// like another message.
std::string printable_message(std::string_view message);

// Flushes standard output, then writes "error: " and printable_message() to standard error in one
// piece.
void print_error(std::string_view message);

}  // namespace shale
