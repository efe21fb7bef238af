#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "shale/comm/parallel/data/data_parallel.h"
#include "shale/models/image/model.h"
#include "shale/models/weights/hf_weights.h"
#include "shale/runtime/data/images/augment.h"

namespace shale::models {

// Naming scheme of a weights file. Residual networks have the same names in both.
enum class WeightNames { kTimm, kTorchvision };

// Published weights of an image classifier, in safetensors. Detects which WeightNames the file
// uses. Ignores batch counters (num_batches_tracked).
class ImageWeights {
 public:
  // path: a file, or a folder with model.safetensors or an index. new_head: do not load the
  // classifier layer, whatever its shape. A position table for another image size is resized.
  // Throws as HfWeights does, with the names of tensors that are missing, unknown, or of the wrong
  // shape.
  ImageWeights(const std::string& path, const ImageModel& model, bool new_head);

  // Sets all parameters and buffers of the model. A classifier layer that is not loaded gets
  // initial values from `seed`. Every rank calls it; there is no communication.
  void load(ImageModel& model, comm::DataParallel& parallel, uint64_t seed) const;
  // Reads a whole parameter or buffer into `to`: dense, f32, host memory.
  void read(const std::string& name, const View& to) const { weights_->read(name, to); }

 private:
  void read_positions(const ImageModel& model, const View& to) const;

  std::string head_;       // prefix of parameters that are not loaded; empty: none
  int64_t positions_ = 0;  // number of rows of the file's position table; 0 if it is not resized
  std::optional<HfWeights> weights_;
};

// Throws ConfigError, with the flags, if the config.json of a folder specifies a different
// normalisation of pixels. Does nothing for a file, or a folder without config.json.
void check_normalisation(const std::string& path, const Augmentation& augmentation);

// Model description for an export.
struct ImageExport {
  std::string folder;
  WeightNames names = WeightNames::kTimm;
  std::string preset;                // name of the preset
  std::vector<std::string> classes;  // class names by label
  Augmentation augmentation;
};

// Name of the checkpoint file that contains the model's timm_config().
inline constexpr const char* kImageModelFile = "image_model.json";
// Returns a config.json from which timm creates the model. It also names the classes.
std::string timm_config(const ImageExport& what, const ImageModel& model);
// Reads a file of timm_config(): architecture, class names ("0", "1", ... if there are none) and
// preprocessing. Throws DataError for an architecture that is not a preset's.
std::tuple<ImageModelConfig, std::vector<std::string>, Augmentation> read_timm_config(
    const std::string& file);

// Writes parameters and running statistics as f32 to model.safetensors; with timm's names also a
// config.json for timm ("local-dir:FOLDER"). Every rank must call it, after averaging buffers
// (DataParallel::average_buffers()). The rank with is_main, which must be rank 0 of its shard
// group, writes. Throws DiskError.
void export_image_model(const ImageExport& what, const ImageModel& model,
                        comm::DataParallel& parallel, bool is_main);

}  // namespace shale::models
