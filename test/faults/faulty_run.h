#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shale/test/faults/disk_call.h"

namespace shale::test {

// How the disk fails; disk_fault_library.cpp explains it.
struct DiskFault {
  std::string under;      // the folder, an absolute path
  std::string kind = {};  // "eio", "enospc", "full", "eintr", "short", "kill"
  int64_t at = 0;         // the call that fails, from 1; 0: none
};

struct FaultyRun {
  int code = 0;  // the exit code, or 128 + signal
  std::string output;
  std::string errors;
  std::vector<DiskCall> calls;  // that succeeded, and what it printed by write()
};

// Runs the shell command `before` + `program` + `after`, of which only `program` meets the fault.
FaultyRun run_with_fault(const DiskFault& fault, const std::string& before,
                         const std::string& program, const std::string& after = "");

// Counts, in a run without faults, to the last call at which a fault of this kind makes a
// difference.
int64_t last_call(const FaultyRun& run, const std::string& kind);

}  // namespace shale::test
