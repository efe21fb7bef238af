#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "shale/runtime/data/chat/chat_encoder.h"
#include "shale/runtime/data/tokens/packing.h"
#include "shale/runtime/data/tokens/token_dataset.h"

namespace shale {

// What lines of jsonl are for.
enum class ExampleKind {
  kAnswers,      // to be learnt
  kPreferences,  // two answers each, of which the first is better: examples 2 i and 2 i + 1
};

// Examples of fine-tuning, in memory.
class ExampleStore final : public TokenExamples {
 public:
  void add(const MaskedTokens& example);  // of two tokens or more

  int64_t size() const override { return std::ssize(ends_); }
  int64_t length(int64_t example) const override;
  void read(int64_t example, int64_t begin, std::span<int32_t> inputs,
            std::span<int32_t> targets) const override;
  int64_t targets(int64_t example, int64_t begin, int64_t count) const override;

 private:
  int64_t begin_of(int64_t example) const;

  std::vector<int32_t> tokens_;
  std::vector<uint8_t> is_answer_;
  std::vector<int64_t> ends_;
};

// Where examples come from.
struct ExampleOptions {
  std::vector<std::string> paths;  // files of JSON lines, also .gz and .zst, or folders of them
  ExampleKind kind = ExampleKind::kAnswers;
  std::shared_ptr<const StoredTokenizer> tokenizer;
  ChatTemplate style = ChatTemplate::kAuto;
  // Of the lines, by a hash of each, where no file is for validation by its name; 0: none, else one
  // at least.
  double val_fraction = 0.1;
  int threads = 1;
  OnReading on_reading = {};
};

struct ExampleSplits {
  std::shared_ptr<const ExampleStore> train;
  std::shared_ptr<const ExampleStore> val;  // null: nothing is kept for validation
  int64_t examples = 0;
  std::string note;          // how they were divided, and which files were left out
  uint64_t fingerprint = 0;  // see DatasetSplits
  uint64_t checksum = 0;     // of all bytes
};

// Reads a line each:
//   answers      {"messages": [{"role": ..., "content": ...}, ...]}: what the assistant says
//                {"prompt": TEXT, "completion": TEXT}: the completion, and a token that ends it
//                {"text": TEXT}: all of it, and a token that ends it
//   preferences  {"prompt": TEXT or messages, "chosen": TEXT or messages, "rejected": alike};
//                messages of prompt and answer together are a conversation, and answers that begin
//                with the same messages need no prompt
// Other keys are counted in the note, or refused as check_line_keys() does.
// The order does not depend on the threads. Throws MissingInputError; DataError, with file and
// line, for what is malformed, has nothing to learn, or is not UTF-8.
ExampleSplits read_examples(const ExampleOptions& options);

}  // namespace shale
