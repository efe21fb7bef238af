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

// An Error has its own code. A file error of the standard library is kMissingInput if no file has
// that name, else kDisk, and its message begins with the path. Out of memory or threads is
// kOutOfMemory; any other exception is kInternal.
Failure failure_of(std::exception_ptr error);

// Returns a message that is safe to print: printable(), except that the lines of a table in it,
// which begin with two spaces, stay lines. Text quoted in it cannot look like another message.
std::string printable_message(std::string_view message);

// Flushes standard output, then writes "error: " and printable_message() to standard error in one
// piece.
void print_error(std::string_view message);

}  // namespace shale
