#include "shale/test/faults/saver.h"

#include <cstdlib>
#include <filesystem>

#include "shale/base/error.h"
#include "shale/runtime/io/file.h"
#include "shale/test/faults/faulty_run.h"

namespace shale::test {

SaverOutcome run_saver(const SaverRun& run) {
  const DiskFault fault{.under = run.folder, .kind = run.fault_kind, .at = run.fault_at};
  SaverOutcome outcome;
  outcome.run = run_with_fault(fault, "timeout 60",
                               cat(SHALE_SAVER " '", run.folder, "/checkpoints' ", run.first, " ",
                                   run.count, " ", kSaverRanks));
  outcome.saved = last_saved(outcome.run.calls, outcome.run.calls.size());
  return outcome;
}

int64_t last_saved(const std::vector<DiskCall>& calls, size_t count) {
  const std::string begin = "saved step ";
  int64_t step = 0;
  for (size_t i = 0; i < count; ++i) {
    if (calls[i].op != DiskOp::kPrint || !calls[i].data.starts_with(begin)) continue;
    step = std::atoll(calls[i].data.c_str() + begin.size());
  }
  return step;
}

std::string problem_with_checkpoints(const CheckpointFolder& checkpoints, int64_t at_least) {
  const std::vector<int64_t> steps = checkpoints.steps();
  if ((steps.empty() ? 0 : steps.front()) < at_least) {
    return cat("the newest step is ", steps.empty() ? 0 : steps.front(), ", expected ", at_least);
  }
  for (const int64_t step : steps) {
    try {
      CheckpointReader(checkpoints.path_of(step)).verify();
    } catch (const Error& error) {
      return cat("step ", step, " is broken: ", error.what());
    }
  }
  return {};
}

std::string leftover(const CheckpointFolder& checkpoints) {
  if (!std::filesystem::exists(checkpoints.path())) return {};
  for (const std::string& name : Folder::open(checkpoints.path()).names()) {
    if (!parse_checkpoint_name(name) && name != "latest") return cat(name, " is left over");
  }
  return {};
}

std::string problem_after_fault(const std::string& folder, int64_t at_least) {
  const CheckpointFolder checkpoints(folder + "/checkpoints");
  const std::string problem = problem_with_checkpoints(checkpoints, at_least);
  if (!problem.empty()) return problem;
  for (const int64_t step : checkpoints.steps()) {
    CheckpointReader reader(checkpoints.path_of(step));
    const std::string difference = sample_difference(reader, {.ranks = kSaverRanks, .rows = 100});
    if (!difference.empty()) return cat("step ", step, ": ", difference);
  }
  checkpoints.clean();
  return leftover(checkpoints);
}

}  // namespace shale::test
