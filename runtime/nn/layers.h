#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "shale/runtime/nn/distribution.h"
#include "shale/runtime/nn/kv_cache.h"
#include "shale/runtime/nn/module.h"
#include "shale/runtime/ops/ffn.h"
#include "shale/runtime/ops/linear.h"
#include "shale/runtime/ops/norm.h"

namespace shale::nn {

// The layers that models are made of. Shapes are those of the ops they call (runtime/ops/). How
// ranks may share a layer's parameters, Parameter::split, it says in its constructor.

// Every rank has all of what these modules declare (Share::kReplicate).
void replicate(const std::vector<Module*>& modules);

// Whether a linear layer has a bias.
enum class Bias : bool { kNo, kYes };

class Lora;  // runtime/nn/lora.h
struct LoraOptions;
enum class FrozenDType : uint8_t;  // runtime/nn/frozen.h

// weight: [out, in], bias: [out]: a linear layer's parameters alone. The layer around it makes
// their product together with others, so that this one never runs by itself.
class LinearWeights : public Module {
 public:
  LinearWeights(Module* parent, std::string name, int64_t in, int64_t out, Init weight_init,
                Bias with_bias = Bias::kYes);
  ~LinearWeights() override;
  bool runs() const override { return false; }
  // The bias; undefined: there is none, or another rank adds it.
  Tensor added_bias() const { return bias != nullptr ? bias->added_value() : Tensor(); }

  // Ranks share the outputs, or the inputs, and then the first one adds the bias. Of an adapter B
  // is shared as the outputs, A as the inputs, and every rank has the other.
  struct Outputs {
    int64_t groups = 1, unit = 1;  // see Split
  };
  void split_outputs(Outputs how);
  void split_outputs() { split_outputs(Outputs()); }
  void split_inputs();

  // x weightᵀ + bias + residual, which is optional, and what the adapter adds.
  Tensor product(const Tensor& x, const Tensor& residual = {}) const;
  // Adds an adapter, before parameters have memory. Throws InternalError unless is_adaptable.
  void adapt(const LoraOptions& options, uint32_t dropout_site);
  const Lora* adapter() const { return adapter_.get(); }  // null: there is none
  // Freezes the weight and keeps it in another dtype than its unit's, before it has memory
  // (keep_frozen(), nn/frozen.h). In codes its parameter is [out, bytes of a row].
  void keep_as(FrozenDType dtype);
  FrozenDType kept_as() const { return kept_as_; }
  Shape weight_shape() const { return {out_, in_}; }  // however it is kept

  Parameter& weight;
  Parameter* bias;                       // null: without
  Operands operands = Operands::kPlain;  // of the products (nn/fp8.h)
  // Whoever makes the product takes product(), where there is an adapter or other operands.
  bool is_adaptable = false;

 private:
  std::unique_ptr<Lora> adapter_;
  int64_t in_, out_;
  FrozenDType kept_as_{};  // kCompute
};

// x weightᵀ + bias (runtime/ops/linear.h).
class Linear : public LinearWeights {
 public:
  Linear(Module* parent, std::string name, int64_t in, int64_t out, Init weight_init,
         Bias with_bias = Bias::kYes);
  bool runs() const override { return true; }
  // x: [..., in]; residual: [..., out], optional, added to the result.
  Tensor forward(const Tensor& x, const Tensor& residual = {});
};

// The feed-forward block with GELU (runtime/ops/ffn.h): up.weight [hidden, width], down.weight
// [width, hidden], both with a bias, under the names that the published weights have.
class FeedForward : public Module {
 public:
  struct Config {
    int64_t width = 0, hidden = 0;
    Init init = {};       // of up
    Init down_init = {};  // of down, which writes to the residual stream
    Gelu gelu = Gelu::kTanh;
    std::string up = "c_fc", down = "c_proj";
  };
  FeedForward(Module* parent, std::string name, const Config& config);
  // x, residual (optional, added to the result) and the result: [..., width].
  Tensor forward(const Tensor& x, const Tensor& residual = {});

  LinearWeights up;
  LinearWeights down;

 private:
  Gelu gelu_;
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

  LinearWeights gate_proj;
  LinearWeights up_proj;
  LinearWeights down_proj;
};

// What tokens see besides each other, and what they do not.
struct AttentionSight {
  Tensor first_keys = {};               // see AttentionOptions
  const CachedLayer* cached = nullptr;  // the tokens before them
};

// Multi-head self-attention whose queries, keys and values are one product: qkv.weight
// [3 width, width], out.weight [width, width], under the names that the published weights have.
class SelfAttention : public Module {
 public:
  struct Config {
    int64_t width = 0, heads = 0;
    Init init = {};      // of qkv
    Init out_init = {};  // of out, which writes to the residual stream
    bool causal = true;
    std::shared_ptr<const BlockMask> blocks = {};  // see AttentionOptions
    std::string qkv = "c_attn", out = "c_proj";
  };
  SelfAttention(Module* parent, std::string name, const Config& config);
  // x, residual (optional, added to the result) and the result: [B, T, width].
  Tensor forward(const Tensor& x, const Tensor& residual = {}, const AttentionSight& sight = {});

  Linear qkv;
  Linear out;

 private:
  Tensor attend(const Tensor& packed, const AttentionSight& sight) const;

  int64_t head_size_;
  bool causal_;
  std::shared_ptr<const BlockMask> blocks_;
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

// weight (the gain): [width]; no weight decay. Where ranks share the channels of rows, and of the
// gain, forward() adds up their squares over the ranks.
class RmsNorm : public Module {
 public:
  RmsNorm(Module* parent, std::string name, int64_t width, float eps);
  Tensor forward(const Tensor& x);
  NormedStream forward_stream(const Tensor& x, const Tensor& branch = {});

  Parameter& weight;

 private:
  Tensor normed_shares(const Tensor& x) const;

  float eps_;
};

// weight: [rows, width]: what lookups read, and output layers that are tied to it. Ranks share its
// rows.
class Embedding : public Module {
 public:
  Embedding(Module* parent, std::string name, int64_t rows, int64_t width, Init init);
  bool runs() const override { return false; }

  // The rows of ids [B, T] i32, below `rows`, plus those of `positions` if there are any: [B, T,
  // width], or this rank's slice of it where ranks share the table; of a table of positions the
  // first rank has all (Share::kFirst). at: [B, T] i32, the positions, if they are others than
  // those of the sequence.
  Tensor forward(const Tensor& ids, const Embedding* positions = nullptr, const Tensor& at = {});
  // linear_cross_entropy() (ops/loss.h) of an output layer with this weight, over the tokens of all
  // ranks. x: [B, T, width], or a slice; targets: [B, T].
  Tensor loss(const Tensor& x, const Tensor& targets, int64_t vocab,
              const ClassifierLossOptions& options = {});

  Parameter& weight;
};

}  // namespace shale::nn
