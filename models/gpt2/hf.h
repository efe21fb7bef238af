#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shale/models/weights/hf_export.h"
#include "shale/models/weights/hf_weights.h"

namespace shale {

// GPT-2 in Hugging Face folders: config.json and safetensors.

struct HfGpt2Config {
  int64_t layers = 12;
  int64_t width = 768;
  int64_t heads = 12;
  int64_t vocab = 50257;   // number of tokens, without padding
  int64_t context = 1024;  // maximum sequence length in tokens
  double layer_norm_eps = 1e-5;
  bool gelu_tanh = true;  // GELU with tanh; false: with erf
  double resid_dropout = 0.1;
  double embd_dropout = 0.1;
  double attn_dropout = 0.1;
  double initializer_range = 0.02;
  std::optional<int64_t> end_token = 50256;  // begin and end token; empty: the file specifies none

  friend bool operator==(const HfGpt2Config&, const HfGpt2Config&) = default;
};

// Reads <folder>/config.json. Throws MissingInputError if it does not exist; DataError, naming the
// key, if a key is missing, has the wrong type, or requests an unsupported variant.
HfGpt2Config load_gpt2_config(const std::string& folder);
// Parses the text of a config.json; `source` names it in messages.
HfGpt2Config parse_gpt2_config(std::string_view text, const std::string& source);

// Returns the text of a config.json; `dtype` is that of the weights.
std::string gpt2_config_json(const HfGpt2Config& config, DType dtype);

// Parameter under Shale's name, which is Hugging Face's without "transformer.":
//   wte.weight [vocab, C]                  wpe.weight [context, C]
//   h.{i}.ln_1.weight, .bias [C]           h.{i}.ln_2.*, ln_f.* likewise
//   h.{i}.attn.c_attn.weight [3C, C], .bias [3C]     h.{i}.attn.c_proj.weight [C, C], .bias [C]
//   h.{i}.mlp.c_fc.weight [4C, C], .bias [4C]        h.{i}.mlp.c_proj.weight [C, 4C], .bias [C]
// Files store the four linear weights of a layer as [in, out].
using Gpt2Tensor = models::HfTensor;

// Returns all parameters, in the order of the model.
std::vector<Gpt2Tensor> gpt2_tensors(const HfGpt2Config& config);

// Returns the layout of GPT-2 files: the name prefix, the embedding, and the buffers attn.bias and
// attn.masked_bias, which are ignored.
models::HfLayout gpt2_layout();

// Reader and writer of GPT-2 folders; see their base classes.
class Gpt2Weights : public models::HfWeights {
 public:
  Gpt2Weights(const std::string& folder, const HfGpt2Config& config)
      : HfWeights(folder, gpt2_tensors(config), gpt2_layout()) {}
};

using Gpt2ExportOptions = models::ExportOptions;

class Gpt2Export : public models::HfExport {
 public:
  Gpt2Export(std::string folder, const HfGpt2Config& config, const Gpt2ExportOptions& options = {})
      : HfExport(std::move(folder), gpt2_tensors(config), gpt2_layout(),
                 gpt2_config_json(config, options.dtype), options) {}
};

}  // namespace shale
