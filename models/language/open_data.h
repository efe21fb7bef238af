#pragma once

#include "shale/models/language/config.h"
#include "shale/runtime/data/text/tokenizer/stored_tokenizer.h"
#include "shale/runtime/data/tokens/token_dataset.h"

namespace shale::models {

// Without --data, as plans may be: tokens that are all 0, of text unless --data-format says another.
//
// The data that the options name, text as tokens of the tokenizer, or as bytes without one. No
// token may be beyond the vocabulary of the model, which is `stored` with --init, else null. Says
// what is read if that takes long. Throws an Error of kInterrupted when the process is asked to
// stop meanwhile (models/training/stop_signals.h), and what open_dataset() throws.
DatasetSplits open_data(const LanguageConfig& config, const StoredModel* stored,
                        std::shared_ptr<const StoredTokenizer> tokenizer);

// How many tokens the data can have, as far as it or its tokenizer say: for presets of bytes.
int64_t data_vocab(DataFormat format, const StoredTokenizer* tokenizer);

}  // namespace shale::models
