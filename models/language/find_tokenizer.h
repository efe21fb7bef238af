#pragma once

#include <memory>
#include <string>

#include "shale/models/language/config.h"
#include "shale/models/weights/hf_extras.h"
#include "shale/runtime/data/text/tokenizer/stored_tokenizer.h"

namespace shale::models {

// The tokenizer of a run: that of --tokenizer; else of the checkpoint that it resumes from; else of
// the tokens of --data, beside which it lies; else of --init, a tokenizer.json or a SentencePiece
// tokenizer.model. Null: the run has none, as "none" says. Throws as read_tokenizer(); ConfigError
// if two of these differ, and for "none" where tokens have one.
std::shared_ptr<const StoredTokenizer> find_tokenizer(const TrainConfig& config);

// What exports of the run say besides its model (null: it has no tokenizer): as the checkpoint that
// it resumes from, or --init, does, and that it writes conversations, if that is what it learns.
HfExtras find_extras(const TrainConfig& config,
                     const std::shared_ptr<const StoredTokenizer>& tokenizer);
// Those of a model in a folder or a checkpoint, with this tokenizer of a file that was named:
// without what is said of another tokenizer's tokens, and in its place what lies beside the file.
HfExtras extras_of_tokenizer(HfExtras extras, const std::string& model, const std::string& file,
                             const StoredTokenizer& tokenizer);

}  // namespace shale::models
