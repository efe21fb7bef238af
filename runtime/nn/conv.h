#pragma once

#include <memory>
#include <string>

#include "shale/runtime/nn/layers.h"
#include "shale/runtime/ops/batch_norm.h"
#include "shale/runtime/ops/conv.h"

namespace shale::nn {

// Layers for image networks. Images are [N, H, W, C].

// 2D convolution with square kernels: weight [out, in, kernel, kernel], bias [out].
class Conv2d : public Module {
 public:
  struct Config {
    int64_t in = 0, out = 0;  // number of channels
    int64_t kernel = 1;       // side of the square kernel in pixels
    Windows windows = {};
    Init init = {};
    Bias bias = Bias::kNo;
  };
  Conv2d(Module* parent, std::string name, const Config& config);
  // x: [N, H, W, in]; returns [N, OH, OW, out] (runtime/ops/conv.h).
  Tensor forward(const Tensor& x);

  Parameter& weight;
  Parameter* bias;  // null: no bias

 private:
  Windows windows_;
};

// Selects whether ReLU is applied to a result.
enum class Relu : bool { kNo, kYes };

// Batch norm (runtime/ops/batch_norm.h). Parameters have the names of published weights: weight
// (the gain) and bias, both [width], without weight decay. Buffers: running_mean and running_var.
// Each rank has its own running statistics; after set_peers() all ranks have the same.
class BatchNorm : public Module {
 public:
  struct Config {
    int64_t width = 0;
    float eps = 1e-5f;
    float momentum = 0.1f;
    Init gain = Init::ones();
  };
  BatchNorm(Module* parent, std::string name, const Config& config);
  // x, residual (optional, added to the result before relu) and the result: [..., width].
  Tensor forward(const Tensor& x, Relu relu = Relu::kNo, const Tensor& residual = {});

  // Sets the other ranks whose samples the batch statistics include; null: only this rank's
  // samples.
  void set_peers(std::shared_ptr<const BatchPeers> peers) { peers_ = std::move(peers); }

  Parameter& weight;
  Parameter& bias;
  Buffer& running_mean;
  Buffer& running_var;

 private:
  float eps_, momentum_;
  std::shared_ptr<const BatchPeers> peers_;
};

}  // namespace shale::nn
