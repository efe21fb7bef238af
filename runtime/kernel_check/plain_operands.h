#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "shale/base/view.h"
#include "shale/kernels/cost.h"

namespace shale::kernel_check {

// Operands of a kernel call in the form in which a foreign function gets them: what the
// kernel reads, what it writes, and its sizes. Statistics for backward are left out.
struct PlainOperands {
  std::vector<View> in, out;
  std::vector<int64_t> shape;
};
using Plain = std::optional<PlainOperands>;  // nullopt: a foreign function cannot make this call

// Each comment lists "inputs -> outputs; sizes". cols is the last dimension; rows is the product of
// all other dimensions. Operands are dense unless stated otherwise.
Plain plain_operands(const kernels::GeluFwdArgs& a);     // x -> y; rows, cols
Plain plain_operands(const kernels::GeluBwdArgs& a);     // x, dy -> dx; rows, cols
Plain plain_operands(const kernels::SwiGluFwdArgs& a);   // gate, up -> y; rows, cols
Plain plain_operands(const kernels::MulArgs& a);         // a, b -> y; rows, cols
Plain plain_operands(const kernels::AxpbyArgs& a);       // a, b -> y = a + b; rows, cols
Plain plain_operands(const kernels::CopyArgs& a);        // x -> y; rows, cols
Plain plain_operands(const kernels::SoftmaxFwdArgs& a);  // x -> y; rows, cols
Plain plain_operands(const kernels::SoftmaxBwdArgs& a);  // y, dy -> dx; rows, cols
// x, gain, bias -> y, or x, residual, gain, bias -> y, sum; rows, cols. gain, bias: [cols].
Plain plain_operands(const kernels::LayerNormFwdArgs& a);
// x, gain -> y, or x, residual, gain -> y, sum; rows, cols.
Plain plain_operands(const kernels::RmsNormFwdArgs& a);
// inputs of the program -> its outputs; rows, cols. Rows that are broadcast are [cols].
Plain plain_operands(const kernels::PointwiseArgs& a);
// a, b -> c; m, n, k, 1 if a is stored as [k, m] (else 0), 1 if b is stored as [n, k]. Not for
// GEMMs with an epilogue.
Plain plain_operands(const kernels::GemmArgs& a);
// q, k, v -> out; B, T, H, heads of k and v, D, elements from a token of q, k or v to the next, 1
// if causal. Not for attention with any other mask.
Plain plain_operands(const kernels::AttentionFwdArgs& a);
template <typename Args>
Plain plain_operands(const Args&) {
  return {};
}

}  // namespace shale::kernel_check
