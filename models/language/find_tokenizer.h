#pragma once

#include <memory>
#include <string>

#include "shale/models/language/config.h"
#include "shale/models/weights/hf_extras.h"
#include "shale/runtime/data/text/tokenizer/stored_tokenizer.h"

namespace shale::models {

// Finds the tokenizer of a run: that of --tokenizer; else of the checkpoint that it resumes from;
// else of the tokens of --data, in their folder; else of --init, a tokenizer.json or a
// SentencePiece tokenizer.model. Null: none of them has one, or --tokenizer none. Throws as
// read_tokenizer(); ConfigError if two of these tokenizers differ, or if --tokenizer is none
// although the tokens have a tokenizer. once: as in DataOptions.
std::shared_ptr<const StoredTokenizer> find_tokenizer(const TrainConfig& config,
                                                      const OncePerHost& once = {});

// Returns extras for exports: those of the checkpoint from which the run resumes or of --init, plus
// the chat template if the run trains on conversations. tokenizer: null if there is none.
HfExtras find_extras(const TrainConfig& config,
                     const std::shared_ptr<const StoredTokenizer>& tokenizer);
// Adapts the extras of a model (a folder or a checkpoint) to `tokenizer`, which was read from
// `file`. Unless it is the model's own tokenizer, the result is the extras in the file's folder, if
// there are any.
HfExtras extras_of_tokenizer(HfExtras extras, const std::string& model, const std::string& file,
                             const StoredTokenizer& tokenizer);

}  // namespace shale::models
