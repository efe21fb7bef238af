#include "shale/models/tools/supervision/restart_policy.h"

#include <algorithm>
#include <csignal>

#include "shale/base/error.h"

namespace shale::models {

Ending ending_of(int code) {
  constexpr int kLauncher = 1;  // mpirun's own failure: it could not start ranks, or lost a host
  switch (code) {
    case static_cast<int>(ExitCode::kOk): return Ending::kDone;
    case static_cast<int>(ExitCode::kInterrupted): return Ending::kPreempted;
    case kLauncher:
    case static_cast<int>(ExitCode::kUnavailable):
    case static_cast<int>(ExitCode::kInternal):
    case static_cast<int>(ExitCode::kComm):
    case 128 + SIGABRT:
    case 128 + SIGBUS:
    case 128 + SIGFPE:
    case 128 + SIGKILL:
    case 128 + SIGSEGV: return Ending::kRestart;
    default: return Ending::kHopeless;
  }
}

std::string describe_exit(int code) {
  if (code > 128 && code < 128 + 65) return cat("killed by signal ", code - 128);
  const auto with = [&](const char* meaning) {
    return cat("exit code ", code, " (", meaning, ")");
  };
  switch (static_cast<ExitCode>(code)) {
    case ExitCode::kOk: return with("done");
    case ExitCode::kUsage: return with("bad flag or config");
    case ExitCode::kData: return with("malformed data or checkpoint");
    case ExitCode::kMissingInput: return with("missing input");
    case ExitCode::kUnavailable: return with("device or host unavailable");
    case ExitCode::kInternal: return with("internal error");
    case ExitCode::kOutOfMemory: return with("out of memory");
    case ExitCode::kDisk: return with("disk error");
    case ExitCode::kInterrupted: return with("stopped after saving");
    case ExitCode::kComm: return with("ranks disagree, or one was lost");
    case ExitCode::kNonFinite: return with("loss or gradient not finite");
  }
  return cat("exit code ", code);
}

RestartPolicy::Decision RestartPolicy::failed_at(int64_t step) {
  if (step > furthest_) without_progress_ = 0;
  furthest_ = std::max(furthest_, step);
  if (without_progress_ >= options_.max_restarts) {
    return {.without_progress = without_progress_};
  }
  double delay_s = options_.first_delay_s;
  for (int64_t i = 0; i < without_progress_ && delay_s < options_.longest_delay_s; ++i)
    delay_s *= 2;
  return {.restart = true,
          .delay_s = std::min(delay_s, options_.longest_delay_s),
          .without_progress = ++without_progress_};
}

}  // namespace shale::models
