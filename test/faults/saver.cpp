#include "test/faults/saver.h"

#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>

#include "runtime/base/error.h"
#include "runtime/io/file.h"
#include "test/support/temp_dir.h"

namespace shale::test {

SaverOutcome run_saver(const SaverRun& run) {
  const TempDir logs;
  std::string command =
      cat("SHALE_FAULT_UNDER='", run.folder, "' SHALE_FAULT_LOG='", logs.file("calls"),
          "' SHALE_FAULT_KIND=", run.fault_kind, " SHALE_FAULT_AT=", run.fault_at,
          " LD_PRELOAD=" SHALE_FAULT_LIBRARY " timeout 60 " SHALE_SAVER " '", run.folder,
          "/checkpoints' ", run.first, " ", run.count, " ", kSaverRanks, " >", logs.file("out"),
          " 2>", logs.file("err"));
  const int status = std::system(command.c_str());
  SaverOutcome outcome;
  // `timeout` passes on how its child ended as the shell would say it.
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  outcome.errors = read_file(logs.file("err"));
  outcome.calls = decode_disk_log(read_file(logs.file("calls")));
  outcome.saved = last_saved(outcome.calls, outcome.calls.size());
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

std::string problem_after_fault(const std::string& folder, int64_t at_least) {
  const CheckpointFolder checkpoints(folder + "/checkpoints");
  const std::vector<int64_t> steps = checkpoints.steps();
  if ((steps.empty() ? 0 : steps.front()) < at_least) {
    return cat("the newest step is ", steps.empty() ? 0 : steps.front(), ", want ", at_least);
  }
  // What has a checkpoint's name was committed: nothing under such a name may be broken.
  for (const int64_t step : steps) {
    try {
      CheckpointReader reader(checkpoints.path_of(step));
      reader.verify();
      const std::string difference = sample_difference(reader, {.ranks = kSaverRanks, .rows = 100});
      if (!difference.empty()) return cat("step ", step, ": ", difference);
    } catch (const Error& error) {
      return cat("step ", step, " is broken: ", error.what());
    }
  }
  checkpoints.clean();
  if (!std::filesystem::exists(checkpoints.path())) return {};
  for (const std::string& name : Folder::open(checkpoints.path()).names()) {
    if (!parse_checkpoint_name(name) && name != "latest") return cat(name, " is left over");
  }
  return {};
}

}  // namespace shale::test
