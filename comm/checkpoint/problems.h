#pragma once

#include <exception>
#include <functional>
#include <string>
#include <string_view>

#include "shale/comm/process_group.h"

namespace shale::comm {

// Errors as text that ranks exchange, so that all ranks throw the same error: the exit code, a
// space, the message; empty: no error.

// Packs any exception. If it is no Error, its code is "out of memory" or "internal error".
std::string pack_problem(std::exception_ptr error);
// Throws the error in the class of its code if callers distinguish that class: DataError,
// MissingInputError, DiskError; else Error. Does nothing if `problem` is empty.
void throw_problem(const std::string& problem);

// Runs `body` on rank 0. Returns its error on all ranks. Collective.
std::string problem_of_root(ProcessGroup& group, std::string_view tag,
                            const std::function<void()>& body);
// Returns the error of the lowest rank that has one. Collective.
std::string first_problem(ProcessGroup& group, std::string_view tag, const std::string& mine);

}  // namespace shale::comm
