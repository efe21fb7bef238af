#include "shale/models/language/stored_model.h"

#include "shale/base/error.h"
#include "shale/comm/parallel/data/full_state.h"

namespace shale::models {

void load_stored_model(const StoredModel& stored, comm::DataParallel& parallel) {
  parallel.load([&](const Parameter& parameter, int64_t first_row, const View& rows) {
    stored.read(parameter.full_name(), rows, first_row);
  });
}

void export_model(const std::string& folder, const LanguageModel& model,
                  comm::DataParallel& parallel, bool is_main, const ExportOptions& options) {
  const ModelFamily& family = model_family(model.config().family);
  if (is_main && parallel.shared().groups.shard->rank() != 0) {
    throw InternalError(cat("export: rank ", parallel.shared().groups.shard->rank(),
                            " of the shard group writes, want rank 0"));
  }
  std::unique_ptr<StoredModelWriter> out;
  if (is_main) out = family.create(folder, model.config(), model.policy(), options);
  comm::FullState state(parallel, /*root=*/0);
  for (const std::string& name : family.stored_parameters(model.config())) {
    const Parameter* parameter = model.find_parameter(name);
    if (parameter == nullptr) {
      throw InternalError(cat("export: the model has no parameter ", name));
    }
    const View values = state.read(*parameter);
    if (out) out->write(name, values);
  }
  if (out) out->commit();
}

}  // namespace shale::models
