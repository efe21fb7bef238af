#include "shale/models/language/open_data.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <span>

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

// As many tokens as are asked for, all 0.
class ZeroTokens final : public TokenStream {
 public:
  explicit ZeroTokens(int64_t tokens) : tokens_(tokens) {}
  int64_t size() const override { return tokens_; }
  int64_t vocab_bound() const override { return 1; }
  void read(int64_t, std::span<int32_t> out) const override {
    std::fill(out.begin(), out.end(), 0);
  }

 private:
  int64_t tokens_;
};

// Stands for data that a plan does not have. A validation of all samples is one of the default
// number.
DatasetSplits planned_data(const LanguageConfig& config, DataFormat format) {
  constexpr int64_t kTrainSamples = int64_t{1} << 30;
  const int64_t eval =
      config.eval_samples > 0 ? config.eval_samples : LanguageConfig().eval_samples;
  return {.train = std::make_shared<ZeroTokens>(kTrainSamples * config.seq_len),
          .val = std::make_shared<ZeroTokens>((eval + 1) * config.seq_len),
          .format = format,
          .summary = "no data: plans do without"};
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
  const bool is_planned = config.data.empty();
  if (!is_planned) options.format = find_format(options);
  if (options.format == DataFormat::kAuto) options.format = DatasetSplits().format;
  const int64_t vocab =
      model_config(config, data_vocab(options.format, tokenizer.get()), stored).vocab;
  if (tokenizer != nullptr && tokenizer->tokenizer.vocab_size() > vocab) {
    throw DataError(cat(tokenizer->path, ": ", tokenizer->tokenizer.vocab_size(),
                        " tokens, the model's vocabulary is ", vocab));
  }
  // Text of bytes has 256 tokens whatever the model has, which LanguageTask compares.
  if (!is_text(options.format) && options.vocab_size == 0) options.vocab_size = vocab;
  return is_planned ? planned_data(config, options.format) : open_dataset(options);
}

}  // namespace shale::models
