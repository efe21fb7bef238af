#pragma once

#include <optional>
#include <string>
#include <vector>

#include "shale/models/language/config.h"
#include "shale/models/training/watch_reading.h"
#include "shale/runtime/data/chat/chat_examples.h"
#include "shale/runtime/data/text/tokenizer/stored_tokenizer.h"
#include "shale/runtime/data/tokens/samples.h"
#include "shale/runtime/data/tokens/token_dataset.h"

namespace shale::models {

// Training data of a language model.
struct TrainingData {
  // Null for pairs of answers, which are in `preferences`.
  std::shared_ptr<const TrainSamples> train;
  std::shared_ptr<const EvalRows> eval;       // null: no validation data, for the reason no_eval
  std::string no_eval = {};                   // reason why there is no validation data
  bool with_documents = false;  // rows contain documents that must not attend to each other
  bool has_all_targets = true;                // every input has a target with a loss
  bool is_text = false;                       // tokens are bytes
  int64_t vocab_bound = 0;                    // all token ids are below this bound
  std::string size;  // for messages and checkpoints, e.g. "1000 tokens as llmc"
  // Hashes of file names and sizes, and of contents; see DatasetSplits.
  uint64_t fingerprint = 0, checksum = 0;
  // Fingerprint of the fractions of all sources; empty: one source.
  std::optional<uint64_t> shares = {};
  std::vector<std::string> summary = {};  // lines for the log
  ExampleSplits preferences = {};         // examples of Objective::kDpo
};

// Opens the configured data: text as tokens of the tokenizer or, without one, as bytes. stored: the
// model of --init; null: there is none. All tokens must be in the model's vocabulary. Logs what is
// read if that takes long. Throws an Error of kInterrupted if the process is asked to stop while
// this function reads (models/training/stop_signals.h), ConfigError and DataError for impossible
// input, and as open_dataset() and read_examples() do.
//
// A plan may omit --data. Then the data is an endless stream of zero tokens, which are bytes of
// text unless --data-format says otherwise. If the run needs documents, each is as long as a
// sequence.
TrainingData open_data(const TrainConfig& config, const StoredModel* stored,
                       std::shared_ptr<const StoredTokenizer> tokenizer,
                       const DataReading& reading);

// Returns the vocabulary size for a preset for bytes: that of the tokenizer. Without a tokenizer,
// 256 if the data is text, else kGpt2Vocab.
int64_t data_vocab(bool is_text, const StoredTokenizer* tokenizer);

}  // namespace shale::models
