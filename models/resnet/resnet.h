#pragma once

#include <memory>
#include <string>
#include <vector>

#include "shale/models/image/model.h"
#include "shale/runtime/nn/conv.h"

namespace shale::models {

// Residual network (arXiv:1512.03385) version 1.5: in a bottleneck the 3 x 3 convolution has the
// stride. Names and layouts of parameters and buffers are those of torchvision's and timm's
// weights.
class ResNet : public ImageModel {
 public:
  explicit ResNet(const ImageModelConfig& config);
  ~ResNet() override;
  std::vector<Module*> blocks() override;
  double flops_per_image() const override { return 6 * multiply_adds_; }
  std::string head() const override { return "fc"; }

 protected:
  Tensor classify(const Tensor& images) override;
  DType compute_dtype() const override { return conv1_.weight.value.dtype(); }

 private:
  class Block;

  nn::Conv2d conv1_;
  nn::BatchNorm bn1_;
  std::vector<std::unique_ptr<Block>> blocks_;
  nn::Linear fc_;
  double multiply_adds_ = 0;  // multiply-adds of a forward pass
};

}  // namespace shale::models
