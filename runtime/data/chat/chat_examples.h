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
  kAnswers,      // answers to train on
  kPreferences,  // pairs of answers, the better one first: examples 2 i and 2 i + 1
};

// Fine-tuning examples in memory.
class ExampleStore final : public TokenExamples {
 public:
  void add(const MaskedTokens& example);  // must have at least two tokens

  int64_t size() const override { return std::ssize(ends_); }
  int64_t length(int64_t example) const override;
  void read(int64_t example, int64_t begin, std::span<int32_t> inputs,
            std::span<int32_t> targets) const override;
  int64_t targets(int64_t example, int64_t begin, int64_t count) const override;

  void exchange(data_internal::PackedValues& all);  // packs or unpacks all examples

 private:
  int64_t begin_of(int64_t example) const;

  std::vector<int32_t> tokens_;
  std::vector<uint8_t> is_answer_;
  std::vector<int64_t> ends_;
};

// Options of read_examples().
struct ExampleOptions {
  std::vector<std::string> paths;  // JSONL files, also .gz and .zst, or folders of them
  ExampleKind kind = ExampleKind::kAnswers;
  std::shared_ptr<const StoredTokenizer> tokenizer;
  ChatTemplate style = ChatTemplate::kAuto;
  // Fraction of the lines for validation if no file name marks validation data. The hash of a line
  // decides; at least one line is chosen, unless the fraction is 0.
  double val_fraction = 0.1;
  int threads = 1;
  OnReading on_reading = {};
  OncePerHost once = {};  // as in DataOptions
};

struct ExampleSplits {
  std::shared_ptr<const ExampleStore> train;
  std::shared_ptr<const ExampleStore> val;  // null: nothing is held out
  int64_t examples = 0;
  std::string note;          // how examples were divided, and which files were skipped
  uint64_t fingerprint = 0;  // see DatasetSplits
  uint64_t checksum = 0;     // checksum of all bytes
};

// Reads examples, one per line:
//   answers      {"messages": [{"role": ..., "content": ...}, ...]}: trains on the assistant turns
//                {"prompt": TEXT, "completion": TEXT}: trains on the completion and the token that
//                ends it
//                {"text": TEXT}: trains on all of the text and the token that ends it
//   preferences  {"prompt": TEXT or messages, "chosen": TEXT or messages, "rejected": same type};
//                prompt and answer messages together form a conversation; answers that begin with
//                the same messages need no prompt
// Other keys are counted in the note, or rejected as in check_line_keys(). The order does not
// depend on the number of threads. Throws MissingInputError; DataError, with file and line, for
// lines that are malformed, have nothing to train on, or are not UTF-8.
ExampleSplits read_examples(const ExampleOptions& options);

}  // namespace shale
