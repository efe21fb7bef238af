#pragma once

#include "shale/models/language/config.h"
#include "shale/runtime/data/tokens/token_dataset.h"

namespace shale::models {

// The data that the options name; of binary data no token may be beyond the vocabulary of the
// model, which is `stored` with --init, else null. Says what is read if that takes long. Throws an
// Error of kInterrupted when the process is asked to stop meanwhile
// (models/training/stop_signals.h), and what open_dataset() throws.
DatasetSplits open_data(const LanguageConfig& config, const StoredModel* stored);

}  // namespace shale::models
