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

// The architecture of a classifier of images. A family takes from it what it has.
struct ImageModelConfig {
  std::string family = "resnet";  // or "vit"
  int64_t classes = 1000;
  int64_t pixels = 224;  // of an image's edge

  // Residual networks (models/resnet/resnet.h).
  std::array<int64_t, 4> depths = {2, 2, 2, 2};  // blocks of each stage
  bool bottleneck = false;                       // blocks of three convolutions; else of two
  bool small_stem = false;  // a window of 3 x 3 pixels and no pooling, for images of some 32 pixels

  // Vision transformers (models/vit/vit.h).
  int64_t layers = 0;
  int64_t width = 0;
  int64_t heads = 0;
  int64_t patch = 0;  // of the edge of what becomes a token, in pixels
  float norm_eps = 1e-6f;
};

// What a classifier is given of a batch; see ImageModel::loss().
struct ClassifiedImages {
  Tensor images, labels, softening;
};

// What training and evaluation need of a classifier.
class ImageModel : public Module {
 public:
  explicit ImageModel(const ImageModelConfig& config) : config_(config) {}
  const ImageModelConfig& config() const { return config_; }

  // The repeated parts, in order: the units of data parallelism.
  virtual std::vector<Module*> blocks() = 0;
  // FLOPs of forward and backward per image: three times those of the products of forward, which
  // are two per multiply-add.
  virtual double flops_per_image() const = 0;

  // The model as a list of pieces, in order: what makes tokens, blocks, and what makes the loss.
  // Between two of them goes [N, tokens(), width] in the compute dtype. Empty for a model that is
  // no such list, which is then no pipeline.
  virtual std::vector<nn::Piece> pieces() { return {}; }
  virtual int64_t tokens() const { return 0; }

  // ---- Published weights, whose names are those of timm's files unless said otherwise ----

  // A parameter or buffer in torchvision's files.
  virtual std::string torchvision_name(std::string_view name) const { return std::string(name); }
  // The module of the classifier: "fc".
  virtual std::string head() const = 0;
  // The parameter with a row for each place of an image, after `leading` others, which depends on
  // the size of images; null: there is none.
  struct PositionTable {
    const Parameter* table = nullptr;  // [1, leading + edge x edge, width]
    int64_t leading = 0;
  };
  virtual PositionTable position_table() const { return {}; }

  // images: [N, pixels, pixels, 3], of any float dtype. Returns [N, classes] in the compute dtype:
  // of a model that is cut, those of this rank's samples (comm::own_samples()).
  Tensor logits(const Tensor& images);
  // Sum of the cross-entropy over the images, a scalar f32. labels: [N] i32; those that are
  // kernels::kIgnoreTarget do not count. softening: see soft_cross_entropy(); undefined: targets
  // are the labels.
  Tensor loss(const Tensor& images, const Tensor& labels, const Tensor& softening = {});
  // Runs some of the pieces, which follow each other, under the model's hooks. x: what the one
  // before them has made; undefined for the first.
  Tensor run_pieces(std::span<const nn::Piece> some, const Tensor& x,
                    const ClassifiedImages& batch);

  // Whether losses keep the logits that they are made of: for evaluations.
  void keep_logits(bool keeps);
  bool keeps_logits() const { return keeps_logits_; }
  // Those of the last loss, [N, classes] of all samples; undefined where it was not made. Of a
  // model that is cut, the ranks that share its layers call this together.
  Tensor kept_logits();

 protected:
  // The batch whose pieces are run.
  const ClassifiedImages& batch() const { return batch_; }
  // The sum of losses of logits, of this rank's samples, over all of the batch's.
  Tensor loss_of(Tensor logits, const ClassifiedImages& batch);
  // The same of images in the compute dtype, inside of the model's hooks.
  virtual Tensor classify(const Tensor& images) = 0;
  // In which the first layer computes, once its parameters have memory.
  virtual DType compute_dtype() const = 0;

 private:
  ImageModelConfig config_;
  ClassifiedImages batch_;
  bool keeps_logits_ = false;
  Tensor kept_logits_;
};

// An architecture by name, and the learning rate that it trains with.
struct ImagePreset {
  std::string name;
  ImageModelConfig model;
  double lr = 1e-3;       // of AdamW
  std::string timm = {};  // what timm calls it; empty: it has none such
};
const std::vector<ImagePreset>& image_presets();
// Throws ConfigError with the names that there are.
const ImagePreset& find_image_preset(const std::string& name);

// Throws ConfigError for sizes that do not go together.
std::unique_ptr<ImageModel> make_image_model(const ImageModelConfig& config);

}  // namespace shale::models
