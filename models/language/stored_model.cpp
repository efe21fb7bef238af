#include "shale/models/language/stored_model.h"

#include <vector>

#include "shale/base/error.h"
#include "shale/base/exec.h"
#include "shale/comm/parallel/data/full_state.h"
#include "shale/runtime/nn/frozen.h"

namespace shale::models {
namespace {

void check_writer(comm::DataParallel& parallel, bool is_main) {
  if (!is_main || parallel.shared().groups.shard->rank() == 0) return;
  throw InternalError(cat("export: rank ", parallel.shared().groups.shard->rank(),
                          " of the shard group writes, expected rank 0"));
}

// Reads stored rows, and quantizes them.
void read_codes(const StoredModel& stored, const nn::LinearWeights& layer, int64_t first_row,
                const View& codes) {
  const int64_t rows = codes.size(0), columns = layer.weight_shape()[1];
  std::vector<float> values(static_cast<size_t>(rows * columns));
  const View view = make_view(values.data(), {rows, columns});
  stored.read(layer.weight.full_name(), view, first_row);
  nn::encode_rows(layer, view, codes);
}

// Writes the initial values of some rows of a parameter. first_row counts in the whole parameter,
// not in a shard.
void write_initial_rows(const Parameter& parameter, uint64_t seed, int64_t first_row,
                        const View& rows) {
  Parameter whole;
  whole.name = parameter.name, whole.owner = parameter.owner, whole.init = parameter.init;
  whole.shape = whole.whole = parameter.whole;
  whole.write_initial(Exec{}, seed, first_row * parameter.whole[1], rows);
}

}  // namespace

void load_stored_model(const StoredModel& stored, comm::DataParallel& parallel,
                       const StoredAdapters* adapters, uint64_t seed) {
  parallel.load([&](const Parameter& parameter, int64_t first_row, const View& rows) {
    if (const nn::LinearWeights* layer = nn::coded_layer(parameter)) {
      read_codes(stored, *layer, first_row, rows);
    } else if (!nn::is_of_adapter(parameter)) {
      stored.read(parameter.full_name(), rows, first_row);
    } else if (adapters != nullptr) {
      adapters->read(parameter, rows, first_row);
    } else {
      write_initial_rows(parameter, seed, first_row, rows);
    }
  });
}

void export_model(const std::string& folder, LanguageModel& model, comm::DataParallel& parallel,
                  bool is_main, const ExportOptions& options) {
  const ModelFamily& family = model_family(model.config().family);
  check_writer(parallel, is_main);
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

void export_adapters(const std::string& folder, LanguageModel& model, const AdapterShape& shape,
                     const std::string& base, comm::DataParallel& parallel, bool is_main) {
  const ModelFamily& family = model_family(model.config().family);
  check_writer(parallel, is_main);
  const std::vector<nn::LinearWeights*> layers = nn::adapted_layers(model);
  std::optional<AdapterWriter> out;
  if (is_main) out.emplace(folder, family, shape, layers, base);
  comm::FullState state(parallel, /*root=*/0);
  for (const Parameter* parameter : adapter_parameters(layers)) {
    const View values = state.read(*parameter);
    if (out) out->write(values);
  }
  if (out) out->commit();
}

}  // namespace shale::models
