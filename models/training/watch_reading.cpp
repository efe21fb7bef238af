#include "shale/models/training/watch_reading.h"

#include <chrono>

#include "shale/base/error.h"
#include "shale/base/log.h"
#include "shale/base/parse.h"
#include "shale/models/training/stop_signals.h"

namespace shale::models {

OnReading watch_reading() {
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kSilence{2};
  return [start = Clock::now(), told = false](const std::string& file) mutable {
    if (StopSignals::received() != 0) {
      throw ErrorWithCode<ExitCode::kInterrupted>(
          cat("stopped while reading ", file, ", as a signal asked for; nothing was saved"));
    }
    if (told || Clock::now() - start < kSilence) return;
    told = true;
    log_info("reading ", printable(file));
  };
}

}  // namespace shale::models
