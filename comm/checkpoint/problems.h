#pragma once

#include <exception>
#include <functional>
#include <string>
#include <string_view>

#include "shale/comm/process_group.h"

namespace shale::comm {

// Errors on their way between ranks, so that all of them throw the same one: the exit code, a
// space, the text; empty: all is well.

// Packs anything that was thrown: what is no Error has the code of running out of memory, or that
// of an internal error.
std::string pack_problem(std::exception_ptr error);
// Throws the error, as the class that its code belongs to where callers tell it from others:
// DataError, MissingInputError, DiskError; else Error. Does nothing if there is none.
void throw_problem(const std::string& problem);

// Runs `body` on rank 0. Returns, on all ranks, what went wrong. Collective.
std::string problem_of_root(ProcessGroup& group, std::string_view tag,
                            const std::function<void()>& body);
// The problem of the lowest rank that has one. Collective.
std::string first_problem(ProcessGroup& group, std::string_view tag, const std::string& mine);

}  // namespace shale::comm
