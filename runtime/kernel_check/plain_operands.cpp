#include "shale/runtime/kernel_check/plain_operands.h"

#include <algorithm>
#include <utility>

namespace shale::kernel_check {
namespace {

// Returns the operands with the sizes of the first output; nullopt if one is strided.
Plain by_rows(std::vector<View> in, std::vector<View> out) {
  std::erase_if(in, [](const View& view) { return !view.defined(); });
  std::erase_if(out, [](const View& view) { return !view.defined(); });
  if (!std::ranges::all_of(in, &View::contiguous) || !std::ranges::all_of(out, &View::contiguous))
    return {};
  const std::vector<int64_t> shape = {out.front().rows(), out.front().cols()};
  return PlainOperands{.in = std::move(in), .out = std::move(out), .shape = shape};
}

// Returns true if the matrix is stored column by column, false if row by row, nullopt if it is
// dense in neither order.
std::optional<bool> stored_transposed(const View& matrix) {
  if (matrix.contiguous()) return false;
  const bool columns = matrix.strides[0] == 1 && matrix.strides[1] == matrix.shape[0];
  return columns ? std::optional(true) : std::nullopt;
}

}  // namespace

Plain plain_operands(const kernels::GeluFwdArgs& a) {
  return by_rows({a.x}, {a.y});
}
Plain plain_operands(const kernels::GeluBwdArgs& a) {
  return by_rows({a.x, a.dy}, {a.dx});
}
Plain plain_operands(const kernels::SwiGluFwdArgs& a) {
  return by_rows({a.gate, a.up}, {a.y});
}
Plain plain_operands(const kernels::MulArgs& a) {
  return by_rows({a.a, a.b}, {a.y});
}
Plain plain_operands(const kernels::AxpbyArgs& a) {
  return a.alpha == 1 && a.beta == 1 ? by_rows({a.a, a.b}, {a.y}) : std::nullopt;
}
Plain plain_operands(const kernels::CopyArgs& a) {
  return by_rows({a.x}, {a.y});
}
Plain plain_operands(const kernels::SoftmaxFwdArgs& a) {
  return by_rows({a.x}, {a.y});
}
Plain plain_operands(const kernels::SoftmaxBwdArgs& a) {
  return by_rows({a.y, a.dy}, {a.dx});
}
Plain plain_operands(const kernels::LayerNormFwdArgs& a) {
  return by_rows({a.x, a.residual, a.gain, a.bias}, {a.y, a.sum});
}
Plain plain_operands(const kernels::RmsNormFwdArgs& a) {
  return by_rows({a.x, a.residual, a.gain}, {a.y, a.sum});
}

Plain plain_operands(const kernels::PointwiseArgs& a) {
  std::vector<View> in(a.inputs.begin(), a.inputs.end());
  for (View& view : in) {  // A row that is broadcast to all rows becomes a vector [cols].
    if (!view.defined() || view.shape.ndim() != 2 || view.strides[0] != 0) continue;
    view.shape = {view.shape[1]};
    view.strides = {1};
  }
  return by_rows(std::move(in), {a.outputs.begin(), a.outputs.end()});
}

Plain plain_operands(const kernels::GemmArgs& a) {
  const bool plain = !a.accumulate && !a.bias.defined() && !a.residual.defined() &&
                     a.epilogue == kernels::Epilogue::kNone && a.c.contiguous();
  const auto left = stored_transposed(a.a), right = stored_transposed(a.b);
  if (!plain || !left || !right) return {};
  return PlainOperands{
      .in = {a.a, a.b},
      .out = {a.c},
      .shape = {a.c.shape[0], a.c.shape[1], a.a.shape[1], *left ? 1 : 0, *right ? 1 : 0}};
}

Plain plain_operands(const kernels::AttentionFwdArgs& a) {
  const bool plain = !a.q_lengths.defined() && !a.k_lengths.defined() && a.window == 0 &&
                     !a.first_keys.defined() && a.softcap == 0 && !a.blocks.defined() &&
                     a.out.contiguous();
  if (!plain) return {};
  return PlainOperands{.in = {a.q, a.k, a.v},
                       .out = {a.out},
                       .shape = {a.q.shape[0], a.q.shape[1], a.q.shape[2], a.k.shape[2],
                                 a.q.shape[3], a.q.strides[1], a.causal ? 1 : 0}};
}

}  // namespace shale::kernel_check
