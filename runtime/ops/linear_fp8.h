#pragma once

#include "shale/kernels/fp8.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/ops/linear.h"
#include "shale/runtime/tensor/tensor.h"

namespace shale {

// The products of linear() with operands of fp8, of bf16 tensors.

// What shares a scale of the weight, whose numbers are of E4M3.
kernels::Fp8Blocks fp8_weight_blocks(Operands operands);

// An operand with memory of its own.
struct Fp8Tensor {
  struct Kind {  // what shares a scale, and the numbers
    kernels::Fp8Blocks blocks = kernels::Fp8Blocks::kLines;
    kernels::Fp8Format format = kernels::Fp8Format::kE4M3;
  };

  // given: memory that has the codes already; undefined: some of its own.
  static Fp8Tensor make(Context& context, int64_t lines, int64_t length, const Kind& kind,
                        MemoryTag tag = MemoryTag::kActivation, const Tensor& given = {});

  kernels::Fp8Operand operand() const;

  Tensor codes, scales;
  Kind kind{};
  int64_t lines = 0, length = 0;
};

// The numbers of a weight as they travel between ranks (kernels/fp8_shard.h).
struct Fp8Codes {
  Tensor codes;    // [N, K] u8
  Tensor largest;  // the largest magnitude of each block
};

// From now on products with fp8 operands read these codes, and not the values of the weight, a
// leaf, which need have no memory; until LeafState::drop_copies().
void set_fp8_codes(const Tensor& weight, const Fp8Codes& codes);

struct LinearInputs {
  const Tensor& weight;
  const Tensor &bias, &residual;  // may be undefined
};

// What is kept of x for the gradient of a weight: xᵀ as an operand, of half its bytes; or x, where
// that is computed again instead of kept.
class Fp8KeptInput {
 public:
  explicit Fp8KeptInput(const Tensor& x) : x_("linear", x) {}
  explicit Fp8KeptInput(const Fp8Tensor& transpose);

  Fp8Tensor transpose(Operands operands) const;

 private:
  SavedTensor x_;
  Fp8Tensor transpose_;  // without its memory, which is saved
  SavedTensor codes_, scales_;
};

// What products make of x, of which that of others is shared (SharedInputs).
struct Fp8InputOperands {
  Operands operands = Operands::kPlain;
  uint64_t version = 0;  // of x
  Fp8Tensor rows;
  std::shared_ptr<const Fp8KeptInput> kept;
};

// x as the operand of forward's product, and what is kept of it, both out of one read.
class Fp8Input {
 public:
  Fp8Input() = default;
  // keeps: whether the weight's gradient may be wanted.
  Fp8Input(Operands operands, const Tensor& x, bool keeps);

  // y = x weightᵀ + bias + residual. Only the first one; x is let go.
  void multiply(const LinearInputs& inputs, const Tensor& y);

  // The gradients of x, number 0 of the inputs, and weight, number 1. That of y is read once for
  // both.
  void emit_grads(BackwardArgs& args, const SavedTensor& weight, Grads& grads) const;

 private:
  Operands operands_ = Operands::kPlain;
  Fp8Tensor rows_;
  std::shared_ptr<const Fp8KeptInput> kept_;
};

}  // namespace shale
