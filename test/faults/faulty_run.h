#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shale/test/faults/disk_call.h"

namespace shale::test {

// Injected disk fault; disk_fault_library.cpp documents the fields.
struct DiskFault {
  std::string under;      // path of the folder, absolute
  // How the call fails: "eio", "enospc", "full", "eintr", "short", "kill" or "lost".
  std::string kind = {};
  int64_t at = 0;         // number of the first call that fails, from 1; 0: no call fails
  int64_t calls = 1;      // number of calls that fail
};

struct FaultyRun {
  int code = 0;  // exit code of the program, or 128 + signal
  std::string output;
  std::string errors;
  std::vector<DiskCall> calls;  // successful calls, and the text that the program printed
};

// Runs the shell command `before` + `program` + `after`. The fault affects only `program`.
FaultyRun run_with_fault(const DiskFault& fault, const std::string& before,
                         const std::string& program, const std::string& after = "");

// Returns the number of the last call that a fault of this kind would affect. `run` is a run
// without faults.
int64_t last_call(const FaultyRun& run, const std::string& kind);

}  // namespace shale::test
