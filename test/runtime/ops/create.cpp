#include "shale/runtime/ops/create.h"

#include <cmath>
#include <limits>

#include "shale/runtime/autograd/recompute.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/ops/elementwise.h"
#include "shale/runtime/ops/pointwise.h"
#include "shale/runtime/ops/reduce.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/op_check.h"

namespace shale::test {
namespace {

using Floats = std::vector<float>;

double mean_of(const Floats& values) {
  double total = 0;
  for (const float value : values) total += value;
  return total / double(values.size());
}
double variance_of(const Floats& values) {
  const double mean = mean_of(values);
  double total = 0;
  for (const float value : values) total += (value - mean) * (value - mean);
  return total / double(values.size());
}

template <typename T>
std::vector<T> cast_to(const Tensor& x) {
  return to_host<T>(cast(x, dtype_of<T>));
}

}  // namespace

TEST_CASE("randn and uniform have their moments, and each call makes other numbers") {
  for (const ContextOptions& options : small_contexts()) {
    Context context(options);
    const auto normal = to_host<float>(randn(context, {100, 100}));
    const auto even = to_host<float>(uniform(context, {100, 100}, -2, 4));
    CHECK(std::abs(mean_of(normal)) < 0.05);  // five standard deviations: 5 / sqrt(10^4)
    CHECK(std::abs(variance_of(normal) - 1) < 0.07);
    CHECK(std::abs(mean_of(even) - 1) < 0.09);
    // The variance of a uniform distribution of width 6 is 6^2 / 12 = 3.
    CHECK(std::abs(variance_of(even) - 3) < 0.14);
    for (const float x : even) CHECK((x >= -2 && x < 4));
    CHECK_FALSE(normal == to_host<float>(randn(context, {100, 100})));
    CHECK(randn(context, {3}, DType::kBF16).dtype() == DType::kBF16);
  }
}

TEST_CASE("random tensors depend on the seed, the step and the calls before in this step") {
  const auto at_step = [](int64_t step, uint64_t seed, int calls) {
    Context context({.seed = seed});
    context.update_step([step](StepState& state) { state.step = uint64_t(step); });
    for (int i = 1; i < calls; ++i) randn(context, {5});
    return to_host<float>(randn(context, {3}));
  };
  CHECK(at_step(2, 7, 3) == at_step(2, 7, 3));
  CHECK_FALSE(at_step(2, 7, 3) == at_step(3, 7, 3));
  CHECK_FALSE(at_step(2, 7, 3) == at_step(2, 8, 3));
  CHECK_FALSE(at_step(2, 7, 3) == at_step(2, 7, 4));
  Context context(small_context());
  const auto one = to_host<float>(uniform(context, {4}, 0, 1, DType::kF32, 5));
  CHECK(one == to_host<float>(uniform(context, {4}, 0, 1, DType::kF32, 5)));
  CHECK_FALSE(one == to_host<float>(uniform(context, {4}, 0, 1, DType::kF32, 6)));
  // The calls of a new step are counted from 0 again, as in a run that resumes there.
  randn(context, {3});
  context.update_step([](StepState& state) { state.step = 2; });
  CHECK(to_host<float>(randn(context, {3})) == at_step(2, 7, 1));
}

TEST_CASE("a recomputed segment makes the noise of its first run") {
  Context context(small_context());
  const Tensor x = random_leaf(context, {4}, 1), twin = leaf(context, {4}, to_host<float>(x));
  Tensor noise;
  const auto segment = [&noise](const Tensor& in) {
    noise = randn(in.context(), in.shape());
    return exp(in * noise);
  };
  const Tensor y = checkpoint(segment, x);
  const Tensor first = noise, later = randn(context, {4});
  backward(sum(y));
  CHECK(to_host<float>(noise) == to_host<float>(first));
  CHECK_FALSE(to_host<float>(later) == to_host<float>(first));
  backward(sum(exp(twin * first)));
  CHECK(to_host<float>(x.grad()) == to_host<float>(twin.grad()));
}

TEST_CASE("arange and linspace have the numbers of NumPy") {
  Context context(small_context());
  CHECK(to_host<int32_t>(arange(context, 2, 9, 3)) == std::vector<int32_t>{2, 5, 8});
  CHECK(to_host<int64_t>(arange(context, 3, 0, -1, DType::kI64)) == std::vector<int64_t>{3, 2, 1});
  CHECK(to_host<float>(arange(context, 0, 1, 0.25, DType::kF32)) == Floats{0, 0.25f, 0.5f, 0.75f});
  CHECK(arange(context, 0, 0).numel() == 0);
  CHECK(to_host<float>(linspace(context, 0, 1, 5)) == Floats{0, 0.25f, 0.5f, 0.75f, 1});
  CHECK(to_host<float>(linspace(context, 3, 9, 1)) == Floats{3});
  CHECK(contains(message_of<ShapeError>([&] { arange(context, 0, 3, -1); }),
                 "steps of -1 do not lead from"));
  CHECK(contains(message_of<ShapeError>([&] { arange(context, 0, 3, 0); }),
                 "steps of 0 do not lead from"));
  CHECK(contains(message_of<ShapeError>([&] { linspace(context, 0, 1, 0); }), "count is 0"));
}

TEST_CASE("casts between all dtypes are C's conversions, limited where C has none") {
  const std::vector<double> values = {0, 1.5, -2.75, 300.25, -1e6, 7e9};
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const ContextOptions& options : small_contexts()) {
    Context context(options);
    CAPTURE(to_string(options.device));
    const Tensor x = from_host<double>(context, values, {6});
    CHECK(cast_to<float>(x) == Floats{0, 1.5f, -2.75f, 300.25f, -1e6f, 7e9f});
    CHECK(cast_to<int32_t>(x) ==
          std::vector<int32_t>{0, 1, -2, 300, -1000000, std::numeric_limits<int32_t>::max()});
    CHECK(cast_to<uint8_t>(x) == std::vector<uint8_t>{0, 1, 0, 255, 0, 255});
    CHECK(cast_to<uint32_t>(x) == std::vector<uint32_t>{0, 1, 0, 300, 0, 4294967295u});
    CHECK(cast_to<int64_t>(x) == std::vector<int64_t>{0, 1, -2, 300, -1000000, 7000000000});
    const Floats special = {kInf, -kInf, std::nanf("")};
    CHECK(cast_to<int32_t>(from_host<float>(context, special, {3})) ==
          std::vector<int32_t>{std::numeric_limits<int32_t>::max(),
                               std::numeric_limits<int32_t>::min(), 0});
    const std::vector<int64_t> wide = {-1, 257, int64_t{1} << 40, 16777217};
    const Tensor i = from_host<int64_t>(context, wide, {4});
    CHECK(cast_to<uint8_t>(i) == std::vector<uint8_t>{255, 1, 0, 1});
    CHECK(cast_to<int32_t>(i) == std::vector<int32_t>{-1, 257, 0, 16777217});
    CHECK(cast_to<float>(i) == Floats{-1, 257, 0x1p40f, 16777216});
    CHECK(cast_to<double>(i) == std::vector<double>{-1, 257, 0x1p40, 16777217});
  }
}

TEST_CASE("every pair of dtypes can be cast, and floats there and back give gradients") {
  constexpr DType kAll[] = {DType::kF32, DType::kBF16, DType::kF16, DType::kF64, DType::kI32,
                            DType::kI64, DType::kU8,   DType::kU16, DType::kU32};
  for (const ContextOptions& options : small_contexts()) {
    Context context(options);
    for (const DType from : kAll) {
      for (const DType to : kAll) {
        CAPTURE(dtype_name(from), dtype_name(to), to_string(options.device));
        const Tensor x = arange(context, 0, 100, 1, from);
        CHECK(to_host<float>(cast(cast(x, to), DType::kF32)) ==
              to_host<float>(arange(context, 0, 100, 1, DType::kF32)));
      }
    }
    for (const DType dtype : {DType::kF64, DType::kBF16}) {
      const Tensor x = leaf(context, {2}, {1, 2});
      backward(sum(cast(cast(x, dtype), DType::kF32) * 3));
      CHECK(to_host<float>(x.grad()) == Floats{3, 3});
    }
    Tensor wide = from_host<double>(context, std::vector<double>{1, 2}, {2});
    wide.set_requires_grad(true);
    backward(sum(cast(wide, DType::kF32) * 2));
    CHECK(to_host<float>(wide.grad()) == Floats{2, 2});
    CHECK_FALSE(cast(leaf(context, {2}, {1, 2}), DType::kI32).requires_grad());
  }
}

}  // namespace shale::test
