#pragma once

#include "shale/kernels/fp8.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/ops/linear.h"
#include "shale/runtime/tensor/tensor.h"

namespace shale {

// GEMMs of linear() with fp8 operands, for bf16 tensors.

// Returns the size of the blocks of a weight that share a scale. The weight's format is E4M3.
kernels::Fp8Blocks fp8_weight_blocks(Operands operands);

// A quantized operand that owns its memory.
struct Fp8Tensor {
  struct Kind {  // scale granularity and number format
    kernels::Fp8Blocks blocks = kernels::Fp8Blocks::kLines;
    kernels::Fp8Format format = kernels::Fp8Format::kE4M3;
  };

  // given: memory that already holds the codes; undefined: allocates memory for them.
  static Fp8Tensor make(Context& context, int64_t lines, int64_t length, const Kind& kind,
                        MemoryTag tag = MemoryTag::kActivation, const Tensor& given = {});

  kernels::Fp8Operand operand() const;

  Tensor codes, scales;
  Kind kind{};
  int64_t lines = 0, length = 0;
};

// A quantized weight in the form in which ranks exchange it (kernels/fp8_shard.h).
struct Fp8Codes {
  Tensor codes;    // [N, K] u8: fp8 numbers
  Tensor largest;  // f32: largest magnitude of each block
};

// Makes GEMMs with fp8 operands read these codes instead of the values of the weight, until
// LeafState::drop_copies(). The weight is a leaf; it needs no memory.
void set_fp8_codes(const Tensor& weight, const Fp8Codes& codes);

struct LinearInputs {
  const Tensor& weight;
  const Tensor &bias, &residual;  // may be undefined
};

// The form of x that is kept for the weight's gradient. It is the quantized transpose, which has
// half the bytes of x; or x itself, if x is recomputed instead of kept.
class Fp8KeptInput {
 public:
  explicit Fp8KeptInput(const Tensor& x) : x_("linear", x) {}
  explicit Fp8KeptInput(const Fp8Tensor& transpose);

  Fp8Tensor transpose(Operands operands) const;

 private:
  SavedTensor x_;
  Fp8Tensor transpose_;  // format only; codes_ and scales_ hold its tensors
  SavedTensor codes_, scales_;
};

// The quantized forms of x that several layers share (SharedInputs).
struct Fp8InputOperands {
  Operands operands = Operands::kPlain;
  uint64_t version = 0;  // version of x that was quantized
  Fp8Tensor rows;
  std::shared_ptr<const Fp8KeptInput> kept;
};

// The quantized x for forward's GEMM, and the form of x that is kept for backward. Both are made in
// one pass.
class Fp8Input {
 public:
  Fp8Input() = default;
  // keeps: true if the weight may need a gradient.
  Fp8Input(Operands operands, const Tensor& x, bool keeps);

  // Computes y = x weightᵀ + bias + residual. May be called only once, because it frees the
  // quantized x.
  void multiply(const LinearInputs& inputs, const Tensor& y);

  // Computes the gradients of x (input 0) and of the weight (input 1). Reads the gradient of y only
  // once.
  void emit_grads(BackwardArgs& args, const SavedTensor& weight, Grads& grads) const;

 private:
  Operands operands_ = Operands::kPlain;
  Fp8Tensor rows_;
  std::shared_ptr<const Fp8KeptInput> kept_;
};

}  // namespace shale
