#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "shale/models/image/model.h"
#include "shale/runtime/nn/conv.h"
#include "shale/runtime/nn/layers.h"

namespace shale::models {

// Vision transformer (arXiv:2010.11929). Its tokens are a class token and patches of an image, with
// learned positions. It has pre-norm blocks, and a linear classifier of the class token. Names and
// layouts of parameters are those of timm's weights.
class VisionTransformer : public ImageModel {
 public:
  explicit VisionTransformer(const ImageModelConfig& config);
  ~VisionTransformer() override;
  std::vector<Module*> blocks() override;
  std::vector<nn::Piece> pieces() override;
  int64_t tokens() const override;  // number of tokens, including the class token
  double flops_per_image() const override;
  std::string torchvision_name(std::string_view name) const override;
  std::string head() const override { return "head"; }
  PositionTable position_table() const override { return {.table = &positions_, .leading = 1}; }

 protected:
  Tensor classify(const Tensor& images) override;
  DType compute_dtype() const override { return patches_.weight.value.dtype(); }

 private:
  class Block;

  Tensor embed(const Tensor& images);
  Tensor scores(const Tensor& tokens);

  Parameter& class_token_;
  Parameter& positions_;
  nn::Conv2d patches_;
  std::vector<std::unique_ptr<Block>> blocks_;
  nn::LayerNorm norm_;
  nn::Linear head_;
};

}  // namespace shale::models
