#include "shale/runtime/ops/create.h"

#include <cmath>
#include <utility>
#include <vector>

#include "shale/base/error.h"
#include "shale/base/rng.h"
#include "shale/kernels/random.h"
#include "shale/runtime/ops/elementwise.h"
#include "shale/runtime/tensor/autograd_state.h"

namespace shale {
namespace {

// Returns the name that selects the random numbers of the next random tensor.
std::string next_stream(Context& context) {
  AutogradState& state = context.autograd();
  if (std::exchange(state.draws_step, context.step()) != context.step()) state.draws = 0;
  return cat("random ", context.step(), " ", state.draws++);
}

Tensor random(Context& context, const Shape& shape, DType dtype, std::optional<uint64_t> seed,
              kernels::RandomNormalArgs args) {
  Tensor x = empty(context, shape, dtype);
  args.y = x;
  args.seed = seed.value_or(context.seed());
  args.stream = hash_name(seed.has_value() ? "random" : next_stream(context));
  kernels::random_normal(context.exec(), args);
  return x;
}

// Returns the numbers begin + i * step, computed in f64 and rounded once.
Tensor equidistant(Context& context, double begin, double step, int64_t count, DType dtype) {
  std::vector<double> values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    values[static_cast<size_t>(i)] = begin + static_cast<double>(i) * step;
  }
  return cast(from_host<double>(context, values, {count}), dtype);
}

}  // namespace

Tensor randn(Context& context, const Shape& shape, DType dtype, std::optional<uint64_t> seed) {
  return random(context, shape, dtype, seed, {.y = {}});
}

Tensor uniform(Context& context, const Shape& shape, float low, float high, DType dtype,
               std::optional<uint64_t> seed) {
  return random(context, shape, dtype, seed,
                {.y = {}, .mean = low, .std = high - low, .uniform = true});
}

Tensor arange(Context& context, double begin, double end, double step, DType dtype) {
  const double count = std::ceil((end - begin) / step);
  if (!(count >= 0 && count < 0x1p53)) {
    throw ShapeError(cat("arange: steps of ", step, " do not lead from ", begin, " to ", end));
  }
  return equidistant(context, begin, step, static_cast<int64_t>(count), dtype);
}

Tensor linspace(Context& context, double first, double last, int64_t count, DType dtype) {
  if (count < 1) throw ShapeError(cat("linspace: count is ", count, ", expected 1 or more"));
  const double step = count > 1 ? (last - first) / static_cast<double>(count - 1) : 0;
  return equidistant(context, first, step, count, dtype);
}

}  // namespace shale
