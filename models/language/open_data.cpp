#include "shale/models/language/open_data.h"

#include <chrono>

#include "shale/base/error.h"
#include "shale/base/log.h"
#include "shale/models/training/stop_signals.h"

namespace shale::models {
namespace {

// Called while the data is read, which may take minutes.
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
    log_info("reading ", file);
  };
}

}  // namespace

DatasetSplits open_data(const LanguageConfig& config, const StoredModel* stored) {
  DataOptions options{.path = config.data,
                      .format = config.data_format,
                      .val_fraction = config.val_fraction,
                      .vocab_size = config.vocab,
                      .validate = config.validate,
                      .on_reading = watch_reading()};
  options.format = find_format(options);
  // Text has 256 tokens whatever the model has, which LanguageTask compares.
  if (!is_text(options.format) && options.vocab_size == 0) {
    options.vocab_size = model_config(config, /*is_text=*/false, stored).vocab;
  }
  return open_dataset(options);
}

}  // namespace shale::models
