#pragma once

#include <string>

#include "shale/comm/parallel/data/data_parallel.h"
#include "shale/models/language/adapters.h"
#include "shale/models/language/family.h"

namespace shale::models {

// Sets all parameters of a model of the stored one's configuration; those of its adapters to what
// is stored of them, without `adapters` to their initial values by the seed. Collective.
void load_stored_model(const StoredModel& stored, comm::DataParallel& parallel,
                       const StoredAdapters* adapters = nullptr, uint64_t seed = 0);

// Writes the model's f32 values, with those of adapters added to their weights, to `folder`, where
// transformers reads them; above the limit of the options in several files. Holds one unit at a
// time in host memory, on rank 0 of a shard group. Every rank calls it, the one with is_main, which
// is such a rank, writes. Throws as ModelFamily::create.
void export_model(const std::string& folder, LanguageModel& model, comm::DataParallel& parallel,
                  bool is_main, const ExportOptions& options = {}, double adapter_scale = 0);

// Writes the adapters alone, as PEFT has them; `base` is what they belong to. The same otherwise.
void export_adapters(const std::string& folder, LanguageModel& model, const AdapterShape& shape,
                     const std::string& base, comm::DataParallel& parallel, bool is_main);

}  // namespace shale::models
