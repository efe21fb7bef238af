#pragma once

#include <string>

#include "shale/comm/parallel/data/data_parallel.h"
#include "shale/models/language/adapters.h"
#include "shale/models/language/family.h"

namespace shale::models {

// Loads all parameters of a model whose configuration is the stored one. Adapters are loaded from
// `adapters`, or get initial values by the seed. Collective.
void load_stored_model(const StoredModel& stored, comm::DataParallel& parallel,
                       const StoredAdapters* adapters = nullptr, uint64_t seed = 0);

// Writes the f32 values of a model without adapters to `folder` in the format of transformers; in
// several files above the size limit of the options. Holds one unit at a time in host memory, on
// rank 0 of a shard group. Every rank must call it; the rank with is_main, a rank 0 of a shard
// group, writes. Throws as ModelFamily::create.
void export_model(const std::string& folder, LanguageModel& model, comm::DataParallel& parallel,
                  bool is_main, const ExportOptions& options = {});

// Writes only the adapters, in PEFT's format, like export_model(). `base`: their base model.
void export_adapters(const std::string& folder, LanguageModel& model, const AdapterShape& shape,
                     const std::string& base, comm::DataParallel& parallel, bool is_main);

}  // namespace shale::models
