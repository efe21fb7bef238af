#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "shale/comm/parallel/data/data_parallel.h"
#include "shale/models/dit/dit.h"
#include "shale/runtime/io/stored_tensors.h"

namespace shale::models {

// Weights of diffusion transformers in the formats of two published programs:
//
//   kPaper      a safetensors or .pt file (DiT-XL-2-256x256.pt) with the paper's names, which are
//               Shale's. Its position table, pos_embed, is not read. From checkpoints of the
//               paper's training program, the moving average of the weights is read
//   kDiffusers  a folder with config.json and diffusion_pytorch_model.safetensors or .bin, of
//               diffusers' DiTTransformer2DModel: separate queries, keys and values, and in every
//               block a copy of the layers that compute the condition from time and class

inline constexpr const char* kDiffusersWeights = "diffusion_pytorch_model.safetensors";
inline constexpr const char* kPaperWeights = "model.safetensors";

// Tensors in a file that together store one parameter. They split it into equal parts along its
// first dimension, in order. A part has several names if the file contains copies of it.
struct DitTensor {
  std::string name;  // Shale's name
  std::vector<std::vector<std::string>> parts;
};
// Returns the stored tensors of each parameter, in the order of the model's parameters.
std::vector<DitTensor> dit_tensors(const Dit& model, DitVariant names);

// Returns the text of diffusers' config.json for a model.
std::string dit_config_json(const DitConfig& config);

// Stored weights for a model.
class DitWeights {
 public:
  // `path`: a folder of diffusers, a folder that contains such a folder as transformer/, or a file
  // in the paper's format. Throws MissingInputError, and whatever StoredTensors throws. Throws
  // DataError, with expected and found values, for a config.json of a different model, for copies
  // that differ, and for tensors that are missing, unknown, or of the wrong shape or element type.
  DitWeights(const std::string& path, const Dit& model);

  // Fills `to` (dense, host memory, f32, bf16 or f16) with rows [first_row, first_row + to.size(0))
  // of the parameter. Throws InternalError for an unknown name.
  void read(const Parameter& parameter, int64_t first_row, const View& to) const;

 private:
  void check_copies(const DitTensor& tensor) const;

  std::string path_;
  StoredTensors files_;
  std::map<std::string, DitTensor, std::less<>> tensors_;  // tensors by Shale's names
};

// Writes the weights as f32 to a folder, in the format of the model's DitVariant: to the file
// kPaperWeights for kPaper, to a folder of diffusers for kDiffusers. Rank 0 holds one unit of the
// model at a time in host memory. Collective. Throws DiskError.
void export_dit(const std::string& folder, const Dit& model, comm::DataParallel& parallel,
                bool is_main);

}  // namespace shale::models
