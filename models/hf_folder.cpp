#include "shale/models/hf_folder.h"

#include <optional>
#include <vector>

#include "shale/base/error.h"

namespace shale::models {

HfGpt2Config to_hf(const LanguageModelConfig& config) {
  return {.layers = config.layers,
          .width = config.width,
          .heads = config.heads,
          .vocab = config.vocab,
          .context = config.context,
          .layer_norm_eps = config.norm_eps,
          .gelu_tanh = config.gelu == Gelu::kTanh,
          .resid_dropout = config.dropout,
          .embd_dropout = config.dropout,
          .attn_dropout = 0,
          .end_token = config.vocab - 1};  // GPT-2 puts <|endoftext|> last
}

HfFolder::HfFolder(const std::string& folder)
    : config_(load_gpt2_config(folder)), weights_(folder, config_) {}

void HfFolder::apply_to(LanguageModelConfig& config) const {
  config.layers = config_.layers;
  config.width = config_.width;
  config.heads = config_.heads;
  config.vocab = config_.vocab;
  config.padded_vocab = pad_vocab(config_.vocab);
  config.context = config_.context;
  config.norm_eps = static_cast<float>(config_.layer_norm_eps);
  config.gelu = config_.gelu_tanh ? Gelu::kTanh : Gelu::kErf;
}

void HfFolder::load_into(comm::DataParallel& parallel) const {
  parallel.load([this](const Parameter& parameter, const View& to) {
    weights_.read(parameter.full_name(), to);
  });
}

void export_hf_folder(const std::string& folder, const LanguageModel& model,
                      comm::DataParallel& parallel, bool is_main,
                      const Gpt2ExportOptions& options) {
  const HfGpt2Config config = to_hf(model.config());
  std::optional<Gpt2Export> out;
  if (is_main) out.emplace(folder, config, options);
  std::vector<float> values;
  for (const Gpt2Tensor& tensor : gpt2_tensors(config)) {
    const Parameter* parameter = model.find_parameter(tensor.name);
    if (parameter == nullptr) {
      throw InternalError(cat("export: the model has no parameter ", tensor.name));
    }
    values.resize(static_cast<size_t>(parameter->numel()));
    const View view = make_view(values.data(), parameter->shape);
    parallel.read(*parameter, view);
    if (out) out->write(tensor.name, view);
  }
  if (out) out->commit();
}

}  // namespace shale::models
