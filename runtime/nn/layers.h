#pragma once

#include <string>

#include "shale/runtime/nn/module.h"
#include "shale/runtime/ops/attention.h"
#include "shale/runtime/ops/ffn.h"
#include "shale/runtime/ops/norm.h"

namespace shale::nn {

// The layers that models are made of. Shapes are those of the ops they call (runtime/ops/).

// Whether a linear layer has a bias.
enum class Bias : bool { kNo, kYes };

// weight: [out, in], bias: [out].
class Linear : public Module {
 public:
  Linear(Module* parent, std::string name, int64_t in, int64_t out, Init weight_init,
         Bias with_bias = Bias::kYes);
  // x: [..., in]; residual: [..., out], optional, added to the result.
  Tensor forward(const Tensor& x, const Tensor& residual = {});

  Parameter& weight;
  Parameter* bias;  // null: without
};

// Llama's feed-forward block (runtime/ops/swiglu.h). Its parameters have the names and layouts of
// published checkpoints: gate_proj.weight and up_proj.weight [hidden, width], down_proj.weight
// [width, hidden]. The paper's hidden size for the parameters of a GELU block of 4 width is 8/3
// width, which models round up to a multiple of 256.
class SwiGlu : public Module {
 public:
  struct Config {
    int64_t width = 0, hidden = 0;
    Init init = {};       // of gate_proj and up_proj
    Init down_init = {};  // of down_proj, which writes to the residual stream
  };
  SwiGlu(Module* parent, std::string name, const Config& config);
  // x, residual (optional, added to the result) and the result: [..., width].
  Tensor forward(const Tensor& x, const Tensor& residual = {});

  Linear gate_proj;
  Linear up_proj;
  Linear down_proj;
};

// weight (the gain) and bias: [width]; no weight decay.
class LayerNorm : public Module {
 public:
  LayerNorm(Module* parent, std::string name, int64_t width, float eps);
  Tensor forward(const Tensor& x);
  NormedStream forward_stream(const Tensor& x, const Tensor& branch = {});

  Parameter& weight;
  Parameter& bias;

 private:
  float eps_;
};

// weight (the gain): [width]; no weight decay.
class RmsNorm : public Module {
 public:
  RmsNorm(Module* parent, std::string name, int64_t width, float eps);
  Tensor forward(const Tensor& x);
  NormedStream forward_stream(const Tensor& x, const Tensor& branch = {});

  Parameter& weight;

 private:
  float eps_;
};

// weight: [rows, width].
class Embedding : public Module {
 public:
  Embedding(Module* parent, std::string name, int64_t rows, int64_t width, Init init);

  Parameter& weight;
};

}  // namespace shale::nn
