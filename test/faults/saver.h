#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "test/faults/disk_call.h"
#include "test/support/checkpoints.h"

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
  int code = 0;  // the exit code, or 128 + signal
  std::string errors;
  int64_t saved = 0;  // the last step that it said was saved; 0: none
  std::vector<DiskCall> calls;
};

SaverOutcome run_saver(const SaverRun& run);

// The step that the last of the printed lines says was saved; 0: none.
int64_t last_saved(const std::vector<DiskCall>& calls, size_t count);

// Checks, after any fault, the folder "checkpoints" in `folder`: the newest valid checkpoint is of
// step `at_least` or later, all its bytes are right, and cleaning leaves only checkpoints. Empty,
// or what is wrong.
std::string problem_after_fault(const std::string& folder, int64_t at_least);

}  // namespace shale::test
