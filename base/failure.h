#pragma once

#include <exception>
#include <string>
#include <string_view>

#include "shale/base/error.h"

namespace shale {

// How a program ends that an exception ends: what it returns, and prints.
struct Failure {
  ExitCode code = ExitCode::kInternal;
  std::string message;
};

// An Error has its own code. What the standard library throws about a file is kMissingInput where
// nothing has that name, else kDisk, and the message begins with the path; no memory or no more
// threads are kOutOfMemory; all else is kInternal.
Failure failure_of(std::exception_ptr error);

// A message as it is printed: printable(), but with the lines of tables that belong to it, which
// begin with two blanks. What input puts there cannot be taken for another message.
std::string printable_message(std::string_view message);

// Writes "error: MESSAGE", a printable_message(), to standard error in one piece, after what
// standard output holds.
void print_error(std::string_view message);

}  // namespace shale
