#pragma once

#include <optional>
#include <string>
#include <vector>

#include "shale/models/language/config.h"
#include "shale/runtime/data/chat/chat_examples.h"
#include "shale/runtime/data/text/tokenizer/stored_tokenizer.h"
#include "shale/runtime/data/tokens/samples.h"
#include "shale/runtime/data/tokens/token_dataset.h"

namespace shale::models {

// What a language model is trained on.
struct TrainingData {
  std::shared_ptr<const TrainSamples> train;  // null for preferences
  std::shared_ptr<const EvalRows> eval;       // null: there is nothing, because of
  std::string no_eval = {};                   // this
  bool with_documents = false;                // rows have several that are to be kept apart
  bool has_all_targets = true;                // every input has a target with a loss
  bool is_text = false;                       // a token is a byte
  int64_t vocab_bound = 0;                    // every token is below it
  std::string size;                           // "1000 tokens as llmc", for messages and checkpoints
  // See DatasetSplits.
  uint64_t fingerprint = 0, checksum = 0;
  std::optional<uint64_t> whole_checksum = {};
  std::optional<uint64_t> shares = {};  // fingerprint of the sources' shares, if there are several
  std::vector<std::string> summary = {};  // lines for the log
  ExampleSplits preferences = {};         // of Objective::kDpo
};

// Without --data, as plans may be: tokens that are all 0, of text unless --data-format says
// another; documents, if the options want any, are as long as a sequence.
//
// The data that the options name, text as tokens of the tokenizer, or as bytes without one. No
// token may be beyond the vocabulary of the model, which is `stored` with --init, else null. Says
// what is read if that takes long. Throws an Error of kInterrupted when the process is asked to
// stop meanwhile (models/training/stop_signals.h), ConfigError and DataError for what cannot be,
// and what open_dataset() and read_examples() throw.
TrainingData open_data(const TrainConfig& config, const StoredModel* stored,
                       std::shared_ptr<const StoredTokenizer> tokenizer);

// How many tokens the data can have, as far as it or its tokenizer say: for presets of bytes.
int64_t data_vocab(bool is_text, const StoredTokenizer* tokenizer);

}  // namespace shale::models
