#pragma once

#include <string>

#include "shale/comm/parallel/data/data_parallel.h"
#include "shale/models/language/family.h"

namespace shale::models {

// Sets all parameters of a model of the stored one's configuration. Collective.
void load_stored_model(const StoredModel& stored, comm::DataParallel& parallel);

// Writes the model's f32 values to `folder`, where transformers reads them; above the limit of the
// options in several files. Holds one unit at a time in host memory, on rank 0 of a shard group.
// Every rank calls it, the one with is_main, which is such a rank, writes. Throws as
// ModelFamily::create.
void export_model(const std::string& folder, const LanguageModel& model,
                  comm::DataParallel& parallel, bool is_main, const ExportOptions& options = {});

}  // namespace shale::models
