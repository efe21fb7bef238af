#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "shale/comm/parallel/data/data_parallel.h"
#include "shale/models/image/model.h"
#include "shale/models/weights/hf_weights.h"
#include "shale/runtime/data/images/augment.h"

namespace shale::models {

// Whose names a file of weights has. Those of residual networks are the same.
enum class WeightNames { kTimm, kTorchvision };

// Published weights of a classifier of images, in safetensors under either names, which are told
// apart by what is there. Counts of batches (num_batches_tracked) are ignored.
class ImageWeights {
 public:
  // path: a file, or a folder with model.safetensors or an index. new_head: the classifier is not
  // taken from it, of whatever shape it is there. A table of positions for images of another size
  // is resized. Throws as HfWeights, naming tensors that are missing, unknown, or of another shape.
  ImageWeights(const std::string& path, const ImageModel& model, bool new_head);

  // Sets all parameters of that model, those of a new head to their initial values by the seed, and
  // its buffers. Every rank calls it; they exchange nothing.
  void load(ImageModel& model, comm::DataParallel& parallel, uint64_t seed) const;

 private:
  void read_positions(const ImageModel& model, const View& to) const;

  std::string head_;       // of parameters that the file is not asked for; empty: there are none
  int64_t positions_ = 0;  // of the table in the file, if it is resized
  std::optional<HfWeights> weights_;
};

// Throws ConfigError, which names the flags, if the config.json of a folder says that its model
// knows pixels that are normalised otherwise. A file, and a folder without one, say nothing.
void check_normalisation(const std::string& path, const Augmentation& augmentation);

// What an export says of a model besides its weights.
struct ImageExport {
  std::string folder;
  WeightNames names = WeightNames::kTimm;
  std::string preset;                // which model it is
  std::vector<std::string> classes;  // names, by label
  Augmentation augmentation;
};

// Writes parameters and running statistics as f32 to model.safetensors, and under timm's names a
// config.json that timm takes ("local-dir:FOLDER"). Every rank calls it when buffers have been
// averaged (DataParallel::average_buffers()); the one with is_main, which is rank 0 of its shard
// group, writes. Throws DiskError.
void export_image_model(const ImageExport& what, const ImageModel& model,
                        comm::DataParallel& parallel, bool is_main);

}  // namespace shale::models
