#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shale/test/faults/faulty_run.h"
#include "shale/test/support/checkpoints.h"

namespace shale::test {

inline constexpr int kSaverRanks = 2;

// One run of the program save_checkpoints on the folder "checkpoints" in `folder`, with the disk
// failing as disk_fault_library.cpp says.
struct SaverRun {
  std::string folder;
  int64_t first = 1;
  int64_t count = 2;
  std::string fault_kind = {};
  int64_t fault_at = 0;  // 0: none
};

struct SaverOutcome {
  FaultyRun run;
  int64_t saved = 0;  // the last step that it said was saved; 0: none
};

SaverOutcome run_saver(const SaverRun& run);

// The step that the last of the printed lines says was saved; 0: none.
int64_t last_saved(const std::vector<DiskCall>& calls, size_t count);

// Whether the newest checkpoint is of step `at_least` or later, and each one that has a name, and
// so was committed, is valid to its last byte. Empty, or what is wrong.
std::string problem_with_checkpoints(const CheckpointFolder& checkpoints, int64_t at_least);

// What is in the folder besides checkpoints. Empty if nothing is.
std::string leftover(const CheckpointFolder& checkpoints);

// The same for the folder "checkpoints" in `folder`, after any fault; and that all bytes are what
// the saver saved, and cleaning leaves only checkpoints.
std::string problem_after_fault(const std::string& folder, int64_t at_least);

}  // namespace shale::test
