#pragma once

#include <memory>
#include <string>

#include "shale/models/language/config.h"
#include "shale/models/weights/hf_extras.h"
#include "shale/runtime/data/text/tokenizer/stored_tokenizer.h"

namespace shale::models {

// Finds the tokenizer of a run. Looks in this order:
// - --tokenizer
// - the checkpoint from which the run resumes
// - the folder of the tokens in --data
// - the folder or checkpoint of --init: tokenizer.json or SentencePiece's tokenizer.model
//
// Null: there is none, or the run has --tokenizer none. once: as in DataOptions. Throws as
// read_tokenizer(). Throws ConfigError if two of these tokenizers differ, or if --tokenizer is none
// although the tokens have a tokenizer.
std::shared_ptr<const StoredTokenizer> find_tokenizer(const TrainConfig& config,
                                                      const OncePerHost& once = {});

// Returns the extra files for exports: those of the checkpoint from which the run resumes, or of
// --init. Adds the chat template if the run trains on conversations. tokenizer: null if there is
// none.
HfExtras find_extras(const TrainConfig& config,
                     const std::shared_ptr<const StoredTokenizer>& tokenizer);
// Adapts the extra files of a model to `tokenizer`, which was read from `file`. model: folder or
// checkpoint. If the model has another tokenizer, returns the extra files in the folder of `file`,
// if there are any.
HfExtras extras_of_tokenizer(HfExtras extras, const std::string& model, const std::string& file,
                             const StoredTokenizer& tokenizer);

}  // namespace shale::models
