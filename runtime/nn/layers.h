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

// Standard layers. Their shapes are those of the ops that they call (runtime/ops/). A layer's
// constructor declares how ranks may shard its parameters (Parameter::split).

// Declares that every rank holds all parameters of these modules (Share::kReplicate).
void replicate(const std::vector<Module*>& modules);

// Selects whether a linear layer has a bias.
enum class Bias : bool { kNo, kYes };

class Lora;  // runtime/nn/lora.h
struct LoraOptions;
enum class FrozenDType : uint8_t;  // runtime/nn/frozen.h

// Parameters of a linear layer: weight [out, in], bias [out]. The enclosing layer computes the
// GEMM, together with other GEMMs, so this module never runs by itself.
class LinearWeights : public Module {
 public:
  LinearWeights(Module* parent, std::string name, int64_t in, int64_t out, Init weight_init,
                Bias with_bias = Bias::kYes);
  ~LinearWeights() override;
  bool runs() const override { return false; }
  // Returns the bias to add on this rank; undefined without a bias, or if another rank adds it.
  Tensor added_bias() const { return bias != nullptr ? bias->added_value() : Tensor(); }

  // Declare that ranks shard the weight by outputs or by inputs. By outputs, an adapter's B is
  // sharded and its A replicated. By inputs, its A is sharded and its B replicated, and the first
  // rank adds the bias.
  struct Outputs {
    int64_t groups = 1, unit = 1;  // see Split
  };
  void split_outputs(Outputs how);
  void split_outputs() { split_outputs(Outputs()); }
  void split_inputs();

  // Returns x weightᵀ + bias + residual (optional), plus the adapter's result if there is an
  // adapter.
  Tensor product(const Tensor& x, const Tensor& residual = {}) const;
  // Adds an adapter. Call it before the parameters have memory. Throws InternalError unless
  // is_adaptable.
  void adapt(const LoraOptions& options, uint32_t dropout_site);
  const Lora* adapter() const { return adapter_.get(); }  // null: no adapter
  // Freezes the weight and stores it in this dtype (keep_frozen(), nn/frozen.h). Call it before the
  // weight has memory. The parameter of a quantized weight is [out, bytes per row].
  void keep_as(FrozenDType dtype);
  FrozenDType kept_as() const { return kept_as_; }
  Shape weight_shape() const { return {out_, in_}; }  // shape before quantization

  Parameter& weight;
  Parameter* bias;                       // null: no bias
  Operands operands = Operands::kPlain;  // operand format of the GEMMs (nn/fp8.h)
  // True if the enclosing layer calls product() when this layer has an adapter or another operand
  // format. Only then it can have an adapter.
  bool is_adaptable = false;

 private:
  std::unique_ptr<Lora> adapter_;
  int64_t in_, out_;
  FrozenDType kept_as_{};  // kCompute: not frozen
};

// A layer that returns x weightᵀ + bias (runtime/ops/linear.h).
class Linear : public LinearWeights {
 public:
  Linear(Module* parent, std::string name, int64_t in, int64_t out, Init weight_init,
         Bias with_bias = Bias::kYes);
  bool runs() const override { return true; }
  // x: [..., in]; residual: [..., out], optional, added to the result.
  Tensor forward(const Tensor& x, const Tensor& residual = {});
};

// Feed-forward block with GELU (runtime/ops/ffn.h): up.weight [hidden, width], down.weight [width,
// hidden], both with a bias, named as in published weights.
class FeedForward : public Module {
 public:
  struct Config {
    int64_t width = 0, hidden = 0;
    Init init = {};       // initial values of up
    Init down_init = {};  // initial values of down, whose result is added to the residual stream
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

// Llama's feed-forward block (runtime/ops/swiglu.h), with names and layouts of published
// checkpoints: gate_proj.weight and up_proj.weight [hidden, width], down_proj.weight [width,
// hidden]. With hidden = 8/3 width it has as many parameters as a GELU block with hidden = 4 width.
// Models round this up to a multiple of 256.
class SwiGlu : public Module {
 public:
  struct Config {
    int64_t width = 0, hidden = 0;
    Init init = {};       // initial values of gate_proj and up_proj
    Init down_init = {};  // initial values of down_proj, which adds to the residual stream
  };
  SwiGlu(Module* parent, std::string name, const Config& config);
  // x, residual (optional, added to the result) and the result: [..., width].
  Tensor forward(const Tensor& x, const Tensor& residual = {});

  LinearWeights gate_proj;
  LinearWeights up_proj;
  LinearWeights down_proj;
};

// Limits the keys to which tokens attend (first_keys), or adds the keys of earlier tokens (cached).
struct AttentionSight {
  Tensor first_keys = {};               // see AttentionOptions
  const CachedLayer* cached = nullptr;  // KV cache of the preceding tokens
};

// Multi-head self-attention with a fused QKV projection: qkv.weight [3 width, width], out.weight
// [width, width], named as in published weights.
class SelfAttention : public Module {
 public:
  struct Config {
    int64_t width = 0, heads = 0;
    Init init = {};      // initial values of qkv
    Init out_init = {};  // initial values of out, whose result is added to the residual stream
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

// LayerNorm. weight (the gain) and bias: [width], without weight decay.
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

// RMSNorm. weight (the gain): [width], without weight decay. If the channels of x and of the gain
// are sharded over ranks, forward() sums the squares over the ranks.
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

// Embedding table. weight: [rows, width], sharded over ranks by rows. It is used by lookups and by
// output layers that are tied to it.
class Embedding : public Module {
 public:
  Embedding(Module* parent, std::string name, int64_t rows, int64_t width, Init init);
  bool runs() const override { return false; }

  // Returns the rows of this table at `ids` [B, T] i32, plus the rows of the table `positions` if
  // given: [B, T, width]. at: [B, T] i32, the positions; undefined: 0 ... T - 1. If this table is
  // sharded, returns this rank's slice, and only the first rank has the position table
  // (Share::kFirst).
  Tensor forward(const Tensor& ids, const Embedding* positions = nullptr, const Tensor& at = {});
  // linear_cross_entropy() (ops/loss.h) over the tokens of all ranks, with this table as the weight
  // of the output layer. x: [B, T, width], or this rank's slice; targets: [B, T].
  Tensor loss(const Tensor& x, const Tensor& targets, int64_t vocab,
              const ClassifierLossOptions& options = {});

  Parameter& weight;
};

}  // namespace shale::nn
