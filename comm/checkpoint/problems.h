#pragma once

#include <exception>
#include <functional>
#include <string>
#include <string_view>

#include "shale/comm/process_group.h"

namespace shale::comm {

// Ranks exchange errors as texts, so that all ranks throw the same error. A text is the exit code,
// a space and the message. An empty text stands for no error.

// Converts any exception to such a text. The exit code of an exception that is not an Error is "out
// of memory" or "internal error".
std::string pack_problem(std::exception_ptr error);
// Throws the error of `problem` as DataError, MissingInputError or DiskError if it has the exit
// code of that class, otherwise as Error. Does nothing if `problem` is empty.
void throw_problem(const std::string& problem);

// Runs `body` on rank 0. Returns its error on all ranks. Collective.
std::string problem_of_root(ProcessGroup& group, std::string_view tag,
                            const std::function<void()>& body);
// Returns the error of the lowest rank that has one. Collective.
std::string first_problem(ProcessGroup& group, std::string_view tag, const std::string& mine);

}  // namespace shale::comm
