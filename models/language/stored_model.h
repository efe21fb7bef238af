#pragma once

#include <string>

#include "shale/comm/parallel/data/data_parallel.h"
#include "shale/models/language/adapters.h"
#include "shale/models/language/family.h"

namespace shale::models {

// Loads all parameters of a model with the same configuration as the stored one. Loads adapters
// from `adapters`; if it is null, they get initial values from `seed`. Collective.
void load_stored_model(const StoredModel& stored, comm::DataParallel& parallel,
                       const StoredAdapters* adapters = nullptr, uint64_t seed = 0);

// Writes the f32 values of a model without adapters to `folder` in the format of transformers.
// Splits them into several files if they exceed the size limit of the options. Rank 0 of a shard
// group holds one unit of the model at a time in host memory. Every rank must call it; the rank
// with is_main, a rank 0 of a shard group, writes. Throws as ModelFamily::create().
void export_model(const std::string& folder, LanguageModel& model, comm::DataParallel& parallel,
                  bool is_main, const ExportOptions& options = {});

// Writes only the adapters, in PEFT's format; otherwise like export_model(). base: name or folder
// of the adapters' base model.
void export_adapters(const std::string& folder, LanguageModel& model, const AdapterShape& shape,
                     const std::string& base, comm::DataParallel& parallel, bool is_main);

}  // namespace shale::models
