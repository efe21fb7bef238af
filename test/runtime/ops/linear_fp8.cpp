#include "shale/kernels/fp8.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/ops/linear.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/op_check.h"

namespace shale::test {
namespace {

struct Block {
  int64_t rows, columns;
};

// A leaf with the values of x as a product has them whose operand has such blocks.
Tensor rounded(const Tensor& x, Block block) {
  const Tensor y = empty(x.context(), x.shape(), x.dtype());
  kernels::round_to_fp8(
      x.exec(),
      {.x = x.view(), .y = y.view(), .block_rows = block.rows, .block_columns = block.columns});
  return leaf(x.context(), x.shape(), to_host<float>(y));
}

}  // namespace

// Each of the three products is that of operands rounded along its own sums.
TEST_CASE("linear with fp8 operands makes each product of what is rounded for it", "[ops]") {
  constexpr Block kAcross = {1, 128}, kDown = {128, 1}, kSquare = {128, 128};
  Context context(small_context());
  const Tensor x = random_leaf(context, {150, 140}, 1), w = random_leaf(context, {136, 140}, 2);
  const Tensor bias = random_leaf(context, {136}, 3);
  const Tensor dy = random_leaf(context, {150, 136}, 4, 1e-3);
  const Tensor y = linear(x, w, bias, {}, Operands::kFp8);
  backward(y, dy);

  const Tensor row_x = rounded(x, kAcross), square_w = rounded(w, kSquare);
  const Tensor forward = linear(row_x, square_w, bias);
  CHECK(to_host<float>(y) == to_host<float>(forward));
  CHECK(to_host<float>(y) != to_host<float>(linear(x, w, bias)));

  const Tensor for_dx = linear(row_x, square_w);
  backward(for_dx, rounded(dy, kAcross));
  CHECK(to_host<float>(x.grad()) == to_host<float>(row_x.grad()));

  const Tensor other_w = random_leaf(context, {136, 140}, 2);
  backward(linear(rounded(x, kDown), other_w), rounded(dy, kDown));
  CHECK(to_host<float>(w.grad()) == to_host<float>(other_w.grad()));

  // The bias adds up gradients that are not rounded.
  const Tensor other_bias = leaf(context, {136}, to_host<float>(bias));
  backward(linear(rounded(x, kDown), other_w, other_bias), dy);
  CHECK(to_host<float>(bias.grad()) == to_host<float>(other_bias.grad()));
}

}  // namespace shale::test
