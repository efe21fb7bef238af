#include "shale/models/language/open_data.h"

#include <chrono>

#include "shale/base/cpu_affinity.h"
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

// Ranks of a node share its cores, which are theirs to compute with as soon as the data is there.
int tokenizing_threads() {
  return cpu_counts().bound;
}

}  // namespace

int64_t data_vocab(DataFormat format, const StoredTokenizer* tokenizer) {
  constexpr int64_t kBytes = 256;
  if (tokenizer != nullptr) return tokenizer->tokenizer.vocab_size();
  return is_text(format) ? kBytes : kGpt2Vocab;
}

DatasetSplits open_data(const LanguageConfig& config, const StoredModel* stored,
                        std::shared_ptr<const StoredTokenizer> tokenizer) {
  DataOptions options{.path = config.data,
                      .format = config.data_format,
                      .val_fraction = config.val_fraction,
                      .vocab_size = config.vocab,
                      .validate = config.validate,
                      .on_reading = watch_reading(),
                      .tokenizer = tokenizer,
                      .threads = tokenizing_threads()};
  options.format = find_format(options);
  const int64_t vocab =
      model_config(config, data_vocab(options.format, tokenizer.get()), stored).vocab;
  if (tokenizer != nullptr && tokenizer->tokenizer.vocab_size() > vocab) {
    throw DataError(cat(tokenizer->path, ": ", tokenizer->tokenizer.vocab_size(),
                        " tokens, the model's vocabulary is ", vocab));
  }
  // Text of bytes has 256 tokens whatever the model has, which LanguageTask compares.
  if (!is_text(options.format) && options.vocab_size == 0) options.vocab_size = vocab;
  return open_dataset(options);
}

}  // namespace shale::models
