#include "shale/models/tools/supervision/restart_policy.h"

#include <algorithm>

#include "shale/base/error.h"

namespace shale::models {

Ending ending_of(int code) {
  // Exit codes of a shell that could not start a command.
  constexpr int kCannotRun = 126, kNotFound = 127;
  switch (code) {
    case static_cast<int>(ExitCode::kOk): return Ending::kDone;
    case static_cast<int>(ExitCode::kInterrupted): return Ending::kPreempted;
    case static_cast<int>(ExitCode::kDisk): return Ending::kDisk;
    case static_cast<int>(ExitCode::kNonFinite): return Ending::kNonFinite;
    case static_cast<int>(ExitCode::kUsage):
    case static_cast<int>(ExitCode::kData):
    case static_cast<int>(ExitCode::kMissingInput):
    case static_cast<int>(ExitCode::kOutOfMemory):
    case kCannotRun:
    case kNotFound: return Ending::kHopeless;
    default: return Ending::kRestart;
  }
}

bool is_own_code(int code) {
  return code == 0 || (code >= static_cast<int>(ExitCode::kUsage) &&
                       code <= static_cast<int>(ExitCode::kNonFinite));
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
  const bool may_be_signal = code > 1 && code < static_cast<int>(ExitCode::kUsage);
  return cat("exit code ", code, may_be_signal ? cat(" (signal ", code, " under MPICH)") : "");
}

RestartPolicy::Decision RestartPolicy::failed(const Failure& failure) {
  if (failure.saved_step > furthest_) without_progress_ = 0;
  furthest_ = std::max(furthest_, failure.saved_step);
  const bool disk = failure.ending == Ending::kDisk;
  bool hopeless =
      without_progress_ >= options_.max_restarts * (disk ? options_.disk_restarts_factor : 1);
  if (failure.ending == Ending::kNonFinite) {
    hopeless = hopeless || non_finite_at_ == failure.step;
    non_finite_at_ = failure.step;
  }
  if (hopeless) return {.without_progress = without_progress_};
  const double longest_s = disk ? options_.longest_disk_delay_s : options_.longest_delay_s;
  double delay_s = options_.first_delay_s;
  for (int64_t i = 0; i < without_progress_ && delay_s < longest_s; ++i) delay_s *= 2;
  return {.restart = true,
          .delay_s = std::min(delay_s, longest_s),
          .without_progress = ++without_progress_};
}

}  // namespace shale::models
