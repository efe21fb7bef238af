#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "shale/base/view.h"
#include "shale/runtime/io/safetensors.h"
#include "shale/runtime/io/safetensors_writer.h"

namespace shale {

// GPT-2 as Hugging Face folders hold it: config.json and safetensors.

struct HfGpt2Config {
  int64_t layers = 12;
  int64_t width = 768;
  int64_t heads = 12;
  int64_t vocab = 50257;   // without padding
  int64_t context = 1024;  // longest sequence, in tokens
  double layer_norm_eps = 1e-5;
  bool gelu_tanh = true;  // the tanh form; else the one with erf
  double resid_dropout = 0.1;
  double embd_dropout = 0.1;
  double attn_dropout = 0.1;
  double initializer_range = 0.02;
  int64_t end_token = 50256;  // bos and eos

  friend bool operator==(const HfGpt2Config&, const HfGpt2Config&) = default;
};

// Reads <folder>/config.json. Throws MissingInputError if it does not exist; DataError, naming the
// key, if a key is missing, has the wrong type, or asks for a variant that Shale does not have.
HfGpt2Config load_gpt2_config(const std::string& folder);
// The same of the file's text; `source` is what messages call it.
HfGpt2Config parse_gpt2_config(std::string_view text, const std::string& source);

// Writes <folder>/config.json; `dtype` is that of the weights. Throws DiskError.
void save_gpt2_config(const std::string& folder, const HfGpt2Config& config,
                      DType dtype = DType::kF32);
// Removes it, if it is there: on the disk when this returns. Throws DiskError.
void remove_gpt2_config(const std::string& folder);

// A parameter under Shale's name, which is Hugging Face's without "transformer.":
//   wte.weight [vocab, C]                  wpe.weight [context, C]
//   h.{i}.ln_1.weight, .bias [C]           h.{i}.ln_2.*, ln_f.* likewise
//   h.{i}.attn.c_attn.weight [3C, C], .bias [3C]     h.{i}.attn.c_proj.weight [C, C], .bias [C]
//   h.{i}.mlp.c_fc.weight [4C, C], .bias [4C]        h.{i}.mlp.c_proj.weight [C, 4C], .bias [C]
struct Gpt2Tensor {
  std::string name;
  std::vector<int64_t> shape;  // Shale's, [out, in], vocabulary not padded
  bool transposed = false;     // the file has [in, out]: the four linear weights of a layer

  std::vector<int64_t> file_shape() const;
};

// All parameters, in the order of the model.
std::vector<Gpt2Tensor> gpt2_tensors(const HfGpt2Config& config);

// The weights of a folder. Names with and without "transformer." are understood; the buffers
// attn.bias and attn.masked_bias are ignored, and so is an lm_head.weight that equals wte.weight.
class Gpt2Weights {
 public:
  // Throws as SafetensorsFolder; DataError with the names (the first 10), expected and found, if a
  // tensor is missing, unknown, or has another shape or an element type that is not F32, BF16 or
  // F16, or if lm_head.weight differs from wte.weight: Shale's GPT-2 ties them.
  Gpt2Weights(const std::string& folder, const HfGpt2Config& config);

  // Fills dst with rows [first_row, first_row + dst.size(0)) of the parameter, in Shale's layout.
  // dst: dense, host memory, f32, bf16 or f16, [rows, in], or [rows] for a vector. Rows of
  // wte.weight beyond the vocabulary are zero: models pad it.
  // Throws InternalError for an unknown name, ShapeError for a range or shape that does not fit.
  void read(std::string_view name, const View& dst, int64_t first_row = 0) const;

 private:
  struct Item {
    Gpt2Tensor tensor;
    SafetensorsFolder::Tensor file;
  };

  void check_head(const SafetensorsFolder::Tensor& head) const;

  SafetensorsFolder folder_;
  std::map<std::string, Item, std::less<>> items_;
};

struct Gpt2ExportOptions {
  DType dtype = DType::kF32;  // of the file: f32, bf16 or f16
  int64_t max_shard_bytes = 5'000'000'000;
};

// Writes a folder that transformers, and Gpt2Weights, read. Nothing is visible before commit().
class Gpt2Export {
 public:
  // Throws ConfigError for a dtype that is none of the three, DiskError if the folder cannot be
  // made or the disk has no room.
  Gpt2Export(std::string folder, const HfGpt2Config& config, const Gpt2ExportOptions& options = {});

  // Names in the order in which write() wants them. Ranks that gather shards for rank 0 walk
  // through the same list.
  const std::vector<Gpt2Tensor>& tensors() const { return tensors_; }

  // `values`: the next parameter, whole, f32, dense, in host memory, in Shale's layout. wte.weight
  // may have padding rows, which are left out. Throws InternalError for another name, ShapeError.
  void write(std::string_view name, const View& values);

  void commit();  // throws InternalError if a parameter has not been written

 private:
  void write_rows(const Gpt2Tensor& tensor, const View& values);

  std::string folder_;
  HfGpt2Config config_;
  DType dtype_;
  std::vector<Gpt2Tensor> tensors_;
  SafetensorsFolderWriter writer_;
  size_t next_ = 0;
};

// The whole in one call: `source` gives each parameter as Gpt2Export::write wants it; the view must
// stay valid until the next call.
void export_gpt2(const std::string& folder, const HfGpt2Config& config,
                 const std::function<View(const std::string& name)>& source,
                 const Gpt2ExportOptions& options = {});

}  // namespace shale
