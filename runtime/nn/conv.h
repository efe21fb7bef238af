#pragma once

#include <memory>
#include <string>

#include "shale/runtime/nn/layers.h"
#include "shale/runtime/ops/batch_norm.h"
#include "shale/runtime/ops/conv.h"

namespace shale::nn {

// Layers of networks for images, which are [N, H, W, C].

// A convolution with square windows: weight [out, in, kernel, kernel], bias [out].
class Conv2d : public Module {
 public:
  struct Config {
    int64_t in = 0, out = 0;  // channels
    int64_t kernel = 1;       // pixels
    Windows windows = {};
    Init init = {};
    Bias bias = Bias::kNo;
  };
  Conv2d(Module* parent, std::string name, const Config& config);
  // x: [N, H, W, in]; returns [N, OH, OW, out] (runtime/ops/conv.h).
  Tensor forward(const Tensor& x);

  Parameter& weight;
  Parameter* bias;  // null: without

 private:
  Windows windows_;
};

// The positive part of a result, or all of it.
enum class Relu : bool { kNo, kYes };

// Batch norm (runtime/ops/batch_norm.h) under the names of published weights: weight (the gain) and
// bias [width], without weight decay; running_mean and running_var, buffers that are each rank's
// own unless set_peers() has been called, with the same on all ranks then.
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

  // Whose samples' statistics count besides this rank's; null: nobody's.
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
