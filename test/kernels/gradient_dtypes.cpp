// Tests that a bf16 gradient equals the f32 gradient, rounded once when it is stored.
#include <optional>

#include "shale/kernels/embedding.h"
#include "shale/kernels/gemm.h"
#include "shale/kernels/norm.h"
#include "shale/kernels/reduce.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/kernels.h"

namespace shale::test {
namespace {

using Values = std::vector<float>;

std::vector<bf16> rounded(const Values& values) {
  std::vector<bf16> result;
  for (const float value : values) result.push_back(bf16(value));
  return result;
}
Values widened(const std::vector<bf16>& values) {
  Values result;
  for (const bf16 value : values) result.push_back(to_f32(value));
  return result;
}

// Returns the gradient that `call(view, accumulate)` computes, starting from `start` or from
// nothing.
template <typename TGrad, class Call>
std::vector<TGrad> gradient(const Exec& exec, int64_t count,
                            const std::optional<std::vector<TGrad>>& start, const Call& call) {
  DeviceArray<TGrad> grad(exec, count);
  if (start) grad.upload(*start);
  call(grad.view(), start.has_value());
  CHECK(grad.margins_intact());
  return grad.download();
}

template <class Call>
void check_rounded(const Exec& exec, int64_t count, const Call& call) {
  const std::vector<bf16> start = randn<bf16>(count, 11);
  CHECK(same_bits(gradient<bf16>(exec, count, {}, call),
                  rounded(gradient<float>(exec, count, {}, call))));
  CHECK(same_bits(gradient<bf16>(exec, count, start, call),
                  rounded(gradient<float>(exec, count, widened(start), call))));
}

}  // namespace

TEMPLATE_TEST_CASE("column_sum into bf16 rounds its f32 sums", "[kernels][reduce]", float, bf16,
                   f16) {
  const auto [rows, cols] =
      GENERATE(table<int64_t, int64_t>({{0, 5}, {1, 1}, {17, 33}, {1000, 17}, {40, 512}}));
  const auto x = randn<TestType>(rows * cols, 1);
  for (const Exec& exec : devices_with({&kernels::column_sum})) {
    CAPTURE(rows, cols);
    const DeviceArray<TestType> d_x(exec, x);
    check_rounded(exec, cols, [&, shape = Shape{rows, cols}](const View& y, bool accumulate) {
      kernels::column_sum(exec, {.x = d_x.view(shape), .y = y, .accumulate = accumulate});
    });
  }
}

TEMPLATE_TEST_CASE("norms round the gradients of gain and bias to bf16 once", "[kernels][norm]",
                   float, bf16, f16) {
  const auto [rows, cols] =
      GENERATE(table<int64_t, int64_t>({{0, 8}, {1, 1}, {67, 64}, {40, 37}, {3, 1600}}));
  const Shape shape = {rows, cols};
  const auto values = randn<TestType>(rows * cols, 1), gain = randn<TestType>(cols, 2);
  const Values mean = randn<float>(rows, 3), rstd(size_t(rows), 0.75f);
  for (const Exec& exec : devices_with({&kernels::layer_norm_bwd, &kernels::rms_norm_bwd})) {
    CAPTURE(rows, cols);
    const DeviceArray<TestType> dy(exec, values), s(exec, values), d_gain(exec, gain);
    const DeviceArray<TestType> dx(exec, rows * cols);
    const DeviceArray<float> means(exec, mean), rstds(exec, rstd);
    // One of the two gradients has the tested dtype, the other is f32.
    for (const bool of_bias : {false, true}) {
      const DeviceArray<float> other(exec, cols);
      check_rounded(exec, cols, [&](const View& grad, bool accumulate) {
        kernels::layer_norm_bwd(exec, {.dy = dy.view(shape),
                                       .s = s.view(shape),
                                       .gain = d_gain.view(),
                                       .mean = means.view(),
                                       .rstd = rstds.view(),
                                       .dx = dx.view(shape),
                                       .dgain = of_bias ? other.view() : grad,
                                       .dbias = of_bias ? grad : other.view(),
                                       .accumulate_dgain = accumulate && !of_bias,
                                       .accumulate_dbias = accumulate && of_bias});
      });
    }
    check_rounded(exec, cols, [&](const View& grad, bool accumulate) {
      kernels::rms_norm_bwd(exec, {.dy = dy.view(shape),
                                   .s = s.view(shape),
                                   .gain = d_gain.view(),
                                   .rstd = rstds.view(),
                                   .dx = dx.view(shape),
                                   .dgain = grad,
                                   .accumulate_dgain = accumulate});
    });
  }
}

TEMPLATE_TEST_CASE("embedding_bwd into bf16 adds a row up in f32 and rounds it once",
                   "[kernels][embedding]", float, bf16, f16) {
  struct Sizes {
    int64_t B, T, V, C;
  };
  // Cases: rows that are selected by no id or by many ids; columns in one strip, in several strips,
  // and ragged.
  const auto s = GENERATE(from_range(std::vector<Sizes>{
      {0, 4, 5, 8}, {1, 1, 1, 1}, {2, 8, 3, 31}, {4, 25, 50, 40}, {2, 5, 7, 2100}}));
  const auto ids = rand_int<int32_t>(s.B * s.T, 1, 0, s.V - 1);
  const auto dy = randn<TestType>(s.B * s.T * s.C, 2);
  for (const Exec& exec : devices_with({&kernels::embedding_bwd})) {
    CAPTURE(s.B, s.T, s.V, s.C);
    const DeviceArray<int32_t> d_ids(exec, ids);
    const DeviceArray<TestType> d_dy(exec, dy);
    const kernels::EmbeddingBwdArgs args{.ids = d_ids.view({s.B, s.T}),
                                         .dy = d_dy.view({s.B, s.T, s.C})};
    check_rounded(exec, s.V * s.C, [&](View grad, bool accumulate) {
      kernels::EmbeddingBwdArgs table = args;
      table.d_table = make_view(grad.data, grad.dtype, {s.V, s.C});
      table.accumulate_table = accumulate;
      kernels::embedding_bwd(exec, table);
    });
    check_rounded(exec, s.T * s.C, [&](View grad, bool accumulate) {
      kernels::EmbeddingBwdArgs positions = args;
      positions.d_positions = make_view(grad.data, grad.dtype, {s.T, s.C});
      positions.accumulate_positions = accumulate;
      kernels::embedding_bwd(exec, positions);
    });
  }
}

TEST_CASE("the gradient of a weight in bf16 is its product in f32, rounded once", "[gemm]") {
  struct Sizes {
    int64_t out, in, rows;
  };
  // Sizes: one element, ragged, exact tiles, several blocks, a long sum.
  for (const auto& [out, in, rows] :
       {Sizes{1, 1, 1}, {7, 50, 3}, {64, 48, 32}, {300, 97, 20}, {130, 64, 1100}}) {
    const auto dy = randn<bf16>(rows * out, 1), x = randn<bf16>(rows * in, 2);
    const std::vector<bf16> start = randn<bf16>(out * in, 3);
    for (const Exec& exec : devices_with({&kernels::gemm})) {
      CAPTURE(out, in, rows);
      const DeviceArray<bf16> d_dy(exec, dy), d_x(exec, x);
      const auto product = [&, shape = Shape{out, in}](View grad, bool accumulate) {
        kernels::GemmArgs args;
        args.a = d_dy.view({out, rows}, {1, out});
        args.b = d_x.view({rows, in});
        args.c = make_view(grad.data, grad.dtype, shape);
        args.accumulate = accumulate;
        kernels::gemm(exec, args);
      };
      const Values once = gradient<float>(exec, out * in, {}, product);
      CHECK(same_bits(gradient<bf16>(exec, out * in, {}, product), rounded(once)));
      Values twice = once;
      for (size_t i = 0; i < twice.size(); ++i) twice[i] += to_f32(start[i]);
      CHECK(same_bits(gradient<bf16>(exec, out * in, start, product), rounded(twice)));
    }
  }
}

TEMPLATE_TEST_CASE("gemm's bias gradient in bf16 is that in f32, rounded once", "[gemm]", float,
                   bf16, f16) {
  for (const auto& [m, n] : {std::pair<int64_t, int64_t>{0, 3}, {1, 1}, {140, 70}, {33, 401}}) {
    constexpr int64_t kInner = 9;
    const Shape shape = {m, n};
    for (const Exec& exec : devices_with({&kernels::gemm})) {
      CAPTURE(m, n);
      const DeviceArray<TestType> a(exec, randn<TestType>(m * kInner, 1));
      const DeviceArray<TestType> b(exec, randn<TestType>(kInner * n, 2));
      const DeviceArray<TestType> aux(exec, randn<TestType>(m * n, 3)), c(exec, m * n);
      check_rounded(exec, n, [&](const View& grad, bool accumulate) {
        kernels::GemmArgs args;
        args.a = a.view({m, kInner}), args.b = b.view({kInner, n}), args.c = c.view(shape);
        args.epilogue = kernels::Epilogue::kDGeluTanh;
        args.aux = aux.view(shape);
        args.bias_grad = grad;
        args.accumulate_bias_grad = accumulate;
        kernels::gemm(exec, args);
      });
    }
  }
}

}  // namespace shale::test
