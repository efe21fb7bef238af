// Tests parameter gradients in bf16: they have the bits of rounded f32 gradients, and need no f32
// memory.
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/ops/elementwise.h"
#include "shale/runtime/ops/embedding.h"
#include "shale/runtime/ops/ffn.h"
#include "shale/runtime/ops/linear.h"
#include "shale/runtime/ops/loss.h"
#include "shale/runtime/ops/norm.h"
#include "shale/runtime/ops/shape.h"
#include "shale/runtime/tensor/tensor_impl.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/numbers.h"
#include "shale/test/support/op_check.h"

namespace shale::test {
namespace {

using In = std::vector<Tensor>;

struct Op {
  std::string name;
  std::vector<Shape> parameters;
  std::function<Tensor(const In&)> run;
};

constexpr int64_t kRows = 24, kWidth = 40, kVocab = 64;

Tensor rows_in(Context& context, DType dtype) {
  return cast(from_host<float>(context, randn<float>(kRows * kWidth, 50), {kRows, kWidth}), dtype);
}

// Ops as they occur in models, on an input x [rows, width] that has no gradient.
std::vector<Op> ops(Context& context, DType dtype) {
  const Tensor x = rows_in(context, dtype);
  const Tensor ids =
      from_host<int32_t>(context, rand_int<int32_t>(kRows, 51, 0, kVocab / 8), {2, kRows / 2});
  const Tensor targets =
      from_host<int32_t>(context, rand_int<int32_t>(kRows, 52, 0, kVocab - 1), {kRows});
  const auto loss = [=](int64_t chunk) {
    return [=](const In& p) {
      return linear_cross_entropy(x, p[0], targets, kVocab, {.chunk_rows = chunk});
    };
  };
  return {
      {"linear", {{30, kWidth}, {30}}, [=](const In& p) { return linear(x, p[0], p[1]); }},
      {"ffn",
       {{50, kWidth}, {50}, {kWidth, 50}, {kWidth}},
       [=](const In& p) { return ffn(x, p[0], p[1], p[2], p[3]); }},
      {"layer_norm", {{kWidth}, {kWidth}}, [=](const In& p) { return layer_norm(x, p[0], p[1]); }},
      {"rms_norm", {{kWidth}}, [=](const In& p) { return rms_norm(x, p[0], 1e-5f); }},
      {"embedding",
       {{kVocab, kWidth}, {kRows, kWidth}},
       [=](const In& p) { return embedding(ids, p[0], p[1]); }},
      {"loss", {{kVocab, kWidth}}, loss(0)},
      {"loss in one chunk", {{kVocab, kWidth}}, loss(kRows)}};
}

std::vector<Tensor> parameters_of(Context& context, const Op& op, DType compute, DType reduce) {
  std::vector<Tensor> parameters;
  for (size_t i = 0; i < op.parameters.size(); ++i) {
    const Tensor exact = random_leaf(context, op.parameters[i], 60 + i, 0.3);
    parameters.push_back(cast(exact.detach(), compute).set_requires_grad(true));
    leaf_state(parameters.back()).allocate_grad = [&context, reduce, shape = op.parameters[i]] {
      return empty(context, shape, reduce, MemoryTag::kGradient);
    };
  }
  return parameters;
}

void run_backward(const Op& op, const In& parameters) {
  const Tensor y = op.run(parameters);
  const auto dy = randn<float>(y.numel(), 70);
  backward(y, cast(from_host<float>(y.context(), dy, y.shape()), y.dtype()));
}

std::vector<float> values_of(const Tensor& x) {
  return to_host<float>(x.dtype() == DType::kF32 ? x : cast(x.detach(), DType::kF32));
}

// Rounds an f32 gradient to bf16 values.
void round_to_bf16(Tensor grad) {
  const NoGrad no_grad(grad.context());
  copy_(grad, cast(cast(grad, DType::kBF16), DType::kF32));
}

}  // namespace

TEST_CASE("a gradient in bf16 has the bits of one in f32 that is rounded after each backward") {
  for (const DType compute : {DType::kF32, DType::kBF16, DType::kF16}) {
    Context context(small_context());
    for (const Op& op : ops(context, compute)) {
      CAPTURE(op.name, dtype_name(compute));
      const In wide = parameters_of(context, op, compute, DType::kF32);
      const In low = parameters_of(context, op, compute, DType::kBF16);
      for (int micro_batch = 0; micro_batch < 3; ++micro_batch) {
        CAPTURE(micro_batch);
        run_backward(op, wide);
        run_backward(op, low);
        for (size_t i = 0; i < wide.size(); ++i) {
          round_to_bf16(wide[i].grad());
          REQUIRE(low[i].grad().dtype() == DType::kBF16);
          CHECK(same_bits(values_of(low[i].grad()), values_of(wide[i].grad())));
        }
      }
    }
  }
}

TEST_CASE("gradients in bf16 of bf16 parameters need no memory but their own") {
  for (const int64_t chunk_rows : {0, 8}) {
    Context context(small_context());
    constexpr int64_t kTokens = 32768;
    const Shape shape = {kTokens, kWidth};
    const int64_t bytes = shape.numel() * dtype_size(DType::kBF16);
    const Op tied{.name = "an embedding that is the output layer too",
                  .parameters = {shape},
                  .run = [&](const In& p) {
                    const auto ids = rand_int<int32_t>(kRows, 51, 0, kTokens - 1);
                    const Tensor x = embedding(from_host<int32_t>(context, ids, {1, kRows}), p[0]);
                    const Tensor rows = reshape(x, {-1, kWidth});
                    return linear_cross_entropy(rows, p[0],
                                                from_host<int32_t>(context, ids, {kRows}), kTokens,
                                                {.chunk_rows = chunk_rows});
                  }};
    const In parameters = parameters_of(context, tied, DType::kBF16, DType::kBF16);
    for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
      context.allocator().reset_peak();
      backward(tied.run(parameters));
      CAPTURE(chunk_rows, micro_batch);
      const MemoryStats stats = context.allocator().stats();
      CHECK(stats.at_peak[size_t(MemoryTag::kGradient)] == bytes);
      // Workspace is used for GEMM blocks and sorted ids. An f32 copy of the gradient would take
      // twice the gradient's size.
      CHECK(stats.at_peak[size_t(MemoryTag::kWorkspace)] < bytes);
    }
  }
}

}  // namespace shale::test
