#include "shale/models/language/stored_model.h"

#include <vector>

#include "shale/base/error.h"

namespace shale::models {

void load_stored_model(const StoredModel& stored, comm::DataParallel& parallel) {
  parallel.load(
      [&](const Parameter& parameter, const View& to) { stored.read(parameter.full_name(), to); });
}

void export_model(const std::string& folder, const LanguageModel& model,
                  comm::DataParallel& parallel, bool is_main, const ExportOptions& options) {
  const ModelFamily& family = model_family(model.config().family);
  std::unique_ptr<StoredModelWriter> out;
  if (is_main) out = family.create(folder, model.config(), model.policy(), options);
  std::vector<float> values;
  for (const std::string& name : family.stored_parameters(model.config())) {
    const Parameter* parameter = model.find_parameter(name);
    if (parameter == nullptr) {
      throw InternalError(cat("export: the model has no parameter ", name));
    }
    values.resize(static_cast<size_t>(parameter->numel()));
    const View view = make_view(values.data(), parameter->shape);
    parallel.read(*parameter, view);
    if (out) out->write(name, view);
  }
  if (out) out->commit();
}

}  // namespace shale::models
