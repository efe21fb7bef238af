#include "shale/test/faults/faulty_run.h"

#include <sys/wait.h>

#include <cstdlib>

#include "shale/base/text.h"
#include "shale/test/support/temp_dir.h"

namespace shale::test {

FaultyRun run_with_fault(const DiskFault& fault, const std::string& before,
                         const std::string& program, const std::string& after) {
  const TempDir logs;
  logs.write("calls", "");
  const std::string command =
      cat(before, " env SHALE_FAULT_UNDER='", fault.under, "' SHALE_FAULT_LOG='",
          logs.file("calls"), "' SHALE_FAULT_KIND=", fault.kind, " SHALE_FAULT_AT=", fault.at,
          " SHALE_FAULT_CALLS=", fault.calls, " LD_PRELOAD=" SHALE_FAULT_LIBRARY " ", program, " ",
          after, " >'", logs.file("out"), "' 2>'", logs.file("err"), "'");
  const int status = std::system(command.c_str());
  return {.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
          .output = read_file(logs.file("out")),
          .errors = read_file(logs.file("err")),
          .calls = decode_disk_log(read_file(logs.file("calls")))};
}

int64_t last_call(const FaultyRun& run, const std::string& kind) {
  int64_t number = 0;
  int64_t last = 0;
  for (const DiskCall& call : run.calls) {
    if (call.op == DiskOp::kPrint) continue;
    ++number;
    if (kind != "full" || takes_room(call.op)) last = number;
  }
  return last;
}

}  // namespace shale::test
