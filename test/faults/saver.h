#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shale/test/faults/faulty_run.h"
#include "shale/test/support/checkpoints.h"

namespace shale::test {

inline constexpr int kSaverRanks = 2;

// One run of the program save_checkpoints on the folder `folder`/checkpoints, with a fault injected
// by disk_fault_library.cpp.
struct SaverRun {
  std::string folder;
  int64_t first = 1;
  int64_t count = 2;
  std::string fault_kind = {};
  int64_t fault_at = 0;  // number of the call that fails; 0: none
};

struct SaverOutcome {
  FaultyRun run;
  int64_t saved = 0;  // last step reported as saved; 0: none
};

SaverOutcome run_saver(const SaverRun& run);

// Returns the step of the last line "saved step N" printed within the first `count` calls; 0 if
// there is none.
int64_t last_saved(const std::vector<DiskCall>& calls, size_t count);

// Checks that the newest checkpoint is of step `at_least` or later, and that every byte of each
// committed checkpoint is valid. A checkpoint is committed if it has its final name. Returns the
// problem, or "".
std::string problem_with_checkpoints(const CheckpointFolder& checkpoints, int64_t at_least);

// Returns the names of files in the folder that are not checkpoints, or "".
std::string leftover(const CheckpointFolder& checkpoints);

// Checks the folder `folder`/checkpoints after any fault: as problem_with_checkpoints() does, and
// that the bytes are those that the saver wrote, and that cleaning leaves only checkpoints.
std::string problem_after_fault(const std::string& folder, int64_t at_least);

}  // namespace shale::test
