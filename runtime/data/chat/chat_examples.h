#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "shale/runtime/data/chat/chat_encoder.h"
#include "shale/runtime/data/once_per_host.h"
#include "shale/runtime/data/tokens/packing.h"
#include "shale/runtime/data/tokens/token_dataset.h"

namespace shale {

// Kinds of JSONL training data.
enum class ExampleKind {
  kAnswers,  // examples with answers to train on
  // pairs of answers; examples 2 i and 2 i + 1 are a pair, and 2 i is the better answer
  kPreferences,
};

// Fine-tuning examples in memory.
class ExampleStore final : public TokenExamples {
 public:
  void add(const MaskedTokens& example);  // Adds an example of at least two tokens.

  int64_t size() const override { return std::ssize(ends_); }
  int64_t length(int64_t example) const override;
  void read(int64_t example, int64_t begin, std::span<int32_t> inputs,
            std::span<int32_t> targets) const override;
  int64_t targets(int64_t example, int64_t begin, int64_t count) const override;

  // Packs all examples into `all`, or unpacks them from it.
  void exchange(data_internal::PackedValues& all);

 private:
  int64_t begin_of(int64_t example) const;

  std::vector<int32_t> tokens_;
  std::vector<uint8_t> is_answer_;
  std::vector<int64_t> ends_;
};

// Options of read_examples().
struct ExampleOptions {
  // JSONL files, also compressed as .gz or .zst, or folders of them
  std::vector<std::string> paths;
  ExampleKind kind = ExampleKind::kAnswers;
  std::shared_ptr<const StoredTokenizer> tokenizer;
  ChatTemplate style = ChatTemplate::kAuto;
  // Fraction of the lines to hold out for validation. Unused if file names mark validation data.
  // The hash of a line decides. At least one line is held out, unless the fraction is 0.
  double val_fraction = 0.1;
  int threads = 1;
  OnReading on_reading = {};
  OncePerHost once = {};  // see DataOptions
};

struct ExampleSplits {
  std::shared_ptr<const ExampleStore> train;
  std::shared_ptr<const ExampleStore> val;  // null: nothing is held out
  int64_t examples = 0;
  std::string note;  // text that says how examples were divided and which files were skipped
  uint64_t fingerprint = 0;  // see DatasetSplits
  uint64_t checksum = 0;     // checksum of all bytes of the files
};

// Reads examples, one per line. Lines with answers to train on:
//
// - {"messages": [{"role": ..., "content": ...}, ...]} trains on the assistant's turns.
// - {"prompt": TEXT, "completion": TEXT} trains on the completion and the token that ends it.
// - {"text": TEXT} trains on all of the text and the token that ends it.
//
// Lines with preferences: {"prompt": X, "chosen": X, "rejected": X}, where X is a text or a list of
// messages, the same in "chosen" and "rejected". Prompt and answer messages together form a
// conversation. If both answers begin with the same messages, no prompt is needed.
//
// Other keys are counted in the note, or rejected as in check_line_keys(). The order does not
// depend on the number of threads. Throws MissingInputError; DataError, with file and line, for
// lines that are malformed, have nothing to train on, or are not UTF-8.
ExampleSplits read_examples(const ExampleOptions& options);

}  // namespace shale
