#include "shale/comm/checkpoint/problems.h"

#include "shale/base/failure.h"

namespace shale::comm {

std::string pack_problem(std::exception_ptr error) {
  if (error == nullptr) return {};
  const Failure failure = failure_of(error);
  return cat(static_cast<int>(failure.code), " ", failure.message);
}

void throw_problem(const std::string& problem) {
  if (problem.empty()) return;
  const size_t space = problem.find(' ');
  const auto code = static_cast<ExitCode>(std::stoi(problem.substr(0, space)));
  const std::string what = problem.substr(space + 1);
  switch (code) {
    case ExitCode::kData: throw DataError(what);
    case ExitCode::kMissingInput: throw MissingInputError(what);
    case ExitCode::kDisk: throw DiskError(what);
    default: throw Error(code, what);
  }
}

std::string problem_of_root(ProcessGroup& group, std::string_view tag,
                            const std::function<void()>& body) {
  std::string problem;
  if (group.rank() == 0) {
    try {
      body();
    } catch (...) {
      problem = pack_problem(std::current_exception());
    }
  }
  return group.broadcast_bytes(problem, /*root=*/0, tag);
}

std::string first_problem(ProcessGroup& group, std::string_view tag, const std::string& mine) {
  std::string first;
  for (std::string& problem : group.gather_bytes(mine, /*root=*/0, tag)) {
    if (first.empty()) first = std::move(problem);
  }
  return group.broadcast_bytes(first, /*root=*/0, tag);
}

}  // namespace shale::comm
