#pragma once

#include "shale/kernels/fp8.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/ops/linear.h"
#include "shale/runtime/tensor/tensor.h"

namespace shale {

// GEMMs of linear() with fp8 operands, for bf16 tensors.

// Returns the size of a weight's blocks that share a scale; the weight's format is E4M3.
kernels::Fp8Blocks fp8_weight_blocks(Operands operands);

// A quantized operand that owns its memory.
struct Fp8Tensor {
  struct Kind {  // scale granularity and number format
    kernels::Fp8Blocks blocks = kernels::Fp8Blocks::kLines;
    kernels::Fp8Format format = kernels::Fp8Format::kE4M3;
  };

  // given: memory that already holds the codes; undefined: allocates memory.
  static Fp8Tensor make(Context& context, int64_t lines, int64_t length, const Kind& kind,
                        MemoryTag tag = MemoryTag::kActivation, const Tensor& given = {});

  kernels::Fp8Operand operand() const;

  Tensor codes, scales;
  Kind kind{};
  int64_t lines = 0, length = 0;
};

// A quantized weight in the form that ranks exchange (kernels/fp8_shard.h).
struct Fp8Codes {
  Tensor codes;    // [N, K] u8: fp8 numbers
  Tensor largest;  // the largest magnitude of each block
};

// From now on GEMMs with fp8 operands read these codes instead of the values of the weight. The
// weight is a leaf and need not have memory. LeafState::drop_copies() ends this.
void set_fp8_codes(const Tensor& weight, const Fp8Codes& codes);

struct LinearInputs {
  const Tensor& weight;
  const Tensor &bias, &residual;  // may be undefined tensors
};

// Value kept of x for the weight's gradient: xᵀ quantized, which has half the bytes, or x itself
// if x is recomputed instead of kept.
class Fp8KeptInput {
 public:
  explicit Fp8KeptInput(const Tensor& x) : x_("linear", x) {}
  explicit Fp8KeptInput(const Fp8Tensor& transpose);

  Fp8Tensor transpose(Operands operands) const;

 private:
  SavedTensor x_;
  Fp8Tensor transpose_;  // without its tensors: codes_ and scales_ have them
  SavedTensor codes_, scales_;
};

// Quantized forms of x that several layers share (SharedInputs).
struct Fp8InputOperands {
  Operands operands = Operands::kPlain;
  uint64_t version = 0;  // version of x that was quantized
  Fp8Tensor rows;
  std::shared_ptr<const Fp8KeptInput> kept;
};

// x quantized for forward's GEMM, and what is kept of it for backward; both are made in one pass.
class Fp8Input {
 public:
  Fp8Input() = default;
  // keeps: true if the weight may need a gradient.
  Fp8Input(Operands operands, const Tensor& x, bool keeps);

  // Computes y = x weightᵀ + bias + residual. Can be called once; it releases the quantized x.
  void multiply(const LinearInputs& inputs, const Tensor& y);

  // Emits the gradients of x (input 0) and weight (input 1), reading the gradient of y once for
  // both.
  void emit_grads(BackwardArgs& args, const SavedTensor& weight, Grads& grads) const;

 private:
  Operands operands_ = Operands::kPlain;
  Fp8Tensor rows_;
  std::shared_ptr<const Fp8KeptInput> kept_;
};

}  // namespace shale
