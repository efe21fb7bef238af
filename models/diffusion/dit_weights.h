#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "shale/comm/parallel/data/data_parallel.h"
#include "shale/models/dit/dit.h"
#include "shale/runtime/io/safetensors.h"

namespace shale::models {

// The weights of diffusion transformers as two published programs name them:
//
//   kPaper      a file of the paper's names, which are Shale's, and pos_embed [1, tokens, width],
//               the sinusoids of positions, which are never read
//   kDiffusers  a folder with config.json and diffusion_pytorch_model.safetensors, of diffusers'
//               DiTTransformer2DModel: queries, keys and values apart, and in every block a copy of
//               what makes the condition of time and class

inline constexpr const char* kDiffusersWeights = "diffusion_pytorch_model.safetensors";
inline constexpr const char* kPaperWeights = "model.safetensors";

// A parameter in a file: equal parts of its first dimension, in order, each under several names,
// which are copies of each other.
struct DitTensor {
  std::string name;  // Shale's
  std::vector<std::vector<std::string>> parts;
};
// All parameters of a model, in its order.
std::vector<DitTensor> dit_tensors(const Dit& model, DitVariant names);

// The text of diffusers' config.json for a model.
std::string dit_config_json(const DitConfig& config);

// Stored weights for a model.
class DitWeights {
 public:
  // `path`: such a folder, or one with transformer/ in it; or a file of the paper's names. Throws
  // MissingInputError; DataError, naming what was wanted and found, for a config.json of another
  // model, for tensors that are missing, unknown, of another shape or element type, for copies that
  // differ, and for pickles, with the way to convert them.
  DitWeights(const std::string& path, const Dit& model);

  // Fills `to`, dense, in host memory, f32, bf16 or f16, with rows [first_row, first_row +
  // to.size(0)) of the parameter. Throws InternalError for another name.
  void read(const Parameter& parameter, int64_t first_row, const View& to) const;

 private:
  void check_copies(const DitTensor& tensor) const;

  std::unique_ptr<SafetensorsFile> file_;
  std::map<std::string, DitTensor, std::less<>> tensors_;  // by Shale's names
};

// Writes the model's f32 values to a folder, by the names of its variant: as above, or the paper's
// as kPaperWeights. Holds one unit at a time in host memory, on rank 0. Collective. Throws
// DiskError.
void export_dit(const std::string& folder, const Dit& model, comm::DataParallel& parallel,
                bool is_main);

}  // namespace shale::models
