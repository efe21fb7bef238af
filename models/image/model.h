#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shale/runtime/nn/module.h"
#include "shale/runtime/nn/piece.h"

namespace shale::models {

// Architecture of an image classifier. Each family uses a subset of the fields.
struct ImageModelConfig {
  std::string family = "resnet";  // "resnet" or "vit"
  int64_t classes = 1000;
  int64_t pixels = 224;  // edge length of an image

  // Residual networks (models/resnet/resnet.h).
  std::array<int64_t, 4> depths = {2, 2, 2, 2};  // number of blocks in each stage
  bool bottleneck = false;  // blocks of three convolutions; false: of two convolutions
  // First layer with a 3 x 3 kernel and no pooling, for images of about 32 pixels.
  bool small_stem = false;

  // Vision transformers (models/vit/vit.h).
  int64_t layers = 0;
  int64_t width = 0;
  int64_t heads = 0;
  int64_t patch = 0;  // edge length of a token's patch, in pixels
  float norm_eps = 1e-6f;
};

// Labelled images of a batch; see ImageModel::loss().
struct ClassifiedImages {
  Tensor images, labels, softening;
};

// Interface of an image classifier for training and evaluation.
class ImageModel : public Module {
 public:
  explicit ImageModel(const ImageModelConfig& config) : config_(config) {}
  const ImageModelConfig& config() const { return config_; }

  // Returns the repeated blocks, in order. Data parallelism shards and reduces block by block.
  virtual std::vector<Module*> blocks() = 0;
  // Returns the FLOPs of forward and backward per image: three times those of forward. GEMMs and
  // convolutions count two FLOPs per multiply-add.
  virtual double flops_per_image() const = 0;

  // Returns the model as a list of pieces, in order: embedding of image patches, blocks, and the
  // loss. They pass on a tensor [N, tokens(), width] in the compute dtype. Empty: the model does
  // not support pipelines.
  virtual std::vector<nn::Piece> pieces() { return {}; }
  virtual int64_t tokens() const { return 0; }

  // ---- Published weights; names are those of timm's files unless stated otherwise ----

  // Returns the name of a parameter or buffer in torchvision's files.
  virtual std::string torchvision_name(std::string_view name) const { return std::string(name); }
  // Returns the name of the classifier layer, for example "fc".
  virtual std::string head() const = 0;
  // Parameter with one row per position of an image, after `leading` other rows. Its number of rows
  // depends on the image size. `table` is null if the model has no such parameter.
  struct PositionTable {
    const Parameter* table = nullptr;  // [1, leading + edge x edge, width]
    int64_t leading = 0;
  };
  virtual PositionTable position_table() const { return {}; }

  // images: [N, pixels, pixels, 3], any float dtype. Returns logits [N, classes] in the compute
  // dtype. If tensor-parallel ranks share the layers, `images` must contain the samples of all
  // these ranks, and only the logits of this rank's samples are returned (comm::own_samples()).
  Tensor logits(const Tensor& images);
  // Returns the sum of the cross-entropy over the images, an f32 scalar. labels: [N] i32; rows with
  // kernels::kIgnoreTarget do not count. softening: see soft_cross_entropy(); undefined: targets
  // are the labels.
  Tensor loss(const Tensor& images, const Tensor& labels, const Tensor& softening = {});
  // Runs some consecutive pieces under the model's hooks. x: output of the previous piece;
  // undefined for the first piece.
  Tensor run_pieces(std::span<const nn::Piece> some, const Tensor& x,
                    const ClassifiedImages& batch);

  // If `keeps`, each loss keeps its logits for kept_logits(), which evaluations use.
  void keep_logits(bool keeps);
  bool keeps_logits() const { return keeps_logits_; }
  // Returns the logits of the last loss, [N, classes] for all samples. Undefined on ranks that did
  // not compute it. In a sharded model, collective over the ranks that share its layers.
  Tensor kept_logits();

 protected:
  // Batch that run_pieces() is processing.
  const ClassifiedImages& batch() const { return batch_; }
  // Returns the sum of the losses over all samples of the batch. logits: those of this rank's
  // samples. Ranks that share the layers add up the losses of their samples.
  Tensor loss_of(Tensor logits, const ClassifiedImages& batch);
  // Computes the logits of images in the compute dtype. logits() and loss() call it inside the
  // model's hooks.
  virtual Tensor classify(const Tensor& images) = 0;
  // Returns the dtype of the first layer's weight. Its parameters must be allocated.
  virtual DType compute_dtype() const = 0;

 private:
  ImageModelConfig config_;
  ClassifiedImages batch_;
  bool keeps_logits_ = false;
  Tensor kept_logits_;
};

// Named architecture, with its learning rate.
struct ImagePreset {
  std::string name;
  ImageModelConfig model;
  double lr = 1e-3;       // learning rate for AdamW
  std::string timm = {};  // timm's name of this model; empty: not in timm
};
const std::vector<ImagePreset>& image_presets();
// Returns a preset. Throws ConfigError, with the known names, for another name.
const ImagePreset& find_image_preset(const std::string& name);

// Makes a model with unallocated parameters. Throws ConfigError for inconsistent sizes.
std::unique_ptr<ImageModel> make_image_model(const ImageModelConfig& config);

}  // namespace shale::models
