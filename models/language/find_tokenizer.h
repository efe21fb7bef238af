#pragma once

#include <memory>

#include "shale/models/language/config.h"
#include "shale/runtime/data/text/tokenizer/stored_tokenizer.h"

namespace shale::models {

// The tokenizer of a run: that of --tokenizer; else of the checkpoint that it resumes from; else of
// the tokens of --data, beside which it lies; else of --init, a tokenizer.json or a SentencePiece
// tokenizer.model. Null: the run has none, as "none" says. Throws as read_tokenizer(); ConfigError
// if two of these differ, and for "none" where tokens have one.
std::shared_ptr<const StoredTokenizer> find_tokenizer(const TrainConfig& config);

}  // namespace shale::models
