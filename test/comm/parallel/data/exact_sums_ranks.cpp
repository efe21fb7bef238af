// Compares N ranks with one rank in low precision. All sums are exact, so gradients and trained
// parameters must be bit-identical for every order of additions.
#include <cmath>
#include <map>

#include "shale/comm/parallel/data/data_parallel.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/nn/layers.h"
#include "shale/runtime/ops/elementwise.h"
#include "shale/runtime/optim/optimizer.h"
#include "shale/test/support/numbers.h"
#include "shale/test/support/op_check.h"
#include "shale/test/support/ranks/harness.h"
#include "shale/test/support/ranks/training.h"

namespace shale::test {
namespace {

using comm::DataParallelOptions;

constexpr int64_t kRows = 12;

// With width 40, a rank's shard begins inside a weight. With width 32, a weight that is alone in
// its buffer is smaller than the shards of two ranks, so one rank owns it. One rank also owns a
// frozen bias.
struct Layers {
  int64_t width = 40;
  bool trains_bias = true;
};

struct TwoLayers : Module {
  explicit TwoLayers(const Layers& layers)
      : first(this, "first", layers.width, layers.width, Init::normal(1)),
        second(this, "second", layers.width, layers.width, Init::normal(1)) {
    first.bias->trainable = second.bias->trainable = layers.trains_bias;
  }
  nn::Linear first, second;
};

// Returns -1, 0 or 1, with at most 5 nonzeros in each row and column of a weight. For inputs and
// output gradients of -1, 0 and 1, hidden values are at most 5 + 1, and weight gradients at most 12
// (5 + 1) = 72. bf16 (8 bits) and f16 (11 bits) hold these integers and all partial sums exactly.
float small_integer(int64_t i, int64_t j) {
  if ((7 * i + 2 * j) % 9 != 0) return 0;
  return (i + j) % 2 == 0 ? 1.f : -1.f;
}

Tensor rows_of(Context& context, DType dtype, int64_t width, int64_t first, int64_t rows,
               uint64_t seed) {
  std::vector<float> values;
  for (int64_t i = first; i < first + rows; ++i) {
    const auto row = rand_int<float>(width, 100 * seed + uint64_t(i), -1, 1);
    values.insert(values.end(), row.begin(), row.end());
  }
  return cast(from_host<float>(context, values, {rows, width}), dtype);
}

struct Result {
  std::map<std::string, std::vector<float>> gradients, parameters;  // values by parameter name
};

// Does one step of gradient descent over kRows rows, in micro-batches of `micro_batch` rows.
Result one_step(comm::ProcessGroup& group, const Layers& layers, const DataParallelOptions& options,
                int64_t micro_batch) {
  Context context(small_context(1));
  TwoLayers net(layers);
  const int64_t width = layers.width;
  comm::DataParallel parallel(net, {&net.first, &net.second}, context, group, options);
  parallel.load([&](const Parameter& parameter, int64_t first_row, const View& rows) {
    const int64_t first = first_row * (parameter.shape.ndim() == 1 ? 1 : width);
    for (int64_t i = 0; i < rows.numel(); ++i) {
      const int64_t at = first + i;
      rows.as<float>()[i] =
          parameter.shape.ndim() == 1 ? float(at % 3 - 1) : small_integer(at / width, at % width);
    }
  });
  optim::Sgd optimizer(parallel.shards(), {.momentum = 0});
  optimizer.prepare(context, 0, 1.f / 64);
  const int64_t micros = kRows / (micro_batch * group.size());
  for (int64_t j = 0; j < micros; ++j) {
    const int64_t first = (j * group.size() + group.rank()) * micro_batch;
    const Tensor x = rows_of(context, options.compute, width, first, micro_batch, 0);
    const Tensor dy = rows_of(context, options.compute, width, first, micro_batch, 1);
    const Tensor y = net.second.forward(net.first.forward(x));
    parallel.begin_backward(/*last=*/j + 1 == micros);
    backward(y, dy);
  }
  parallel.finish_gradients();
  Result result;
  for (const Parameter* parameter : net.parameters()) {
    result.gradients[parameter->full_name()] = full_gradient(parallel, group, *parameter);
  }
  parallel.clip_grad_norm(0);
  optimizer.step();
  parallel.full_state([&](const Parameter& parameter, const View& values) {
    result.parameters[parameter.full_name()].assign(values.as<float>(),
                                                    values.as<float>() + values.numel());
  });
  return result;
}

}  // namespace

TEST_CASE("N ranks give the gradients of one, parameter by parameter, in low precision too") {
  const auto group = world().group();
  struct Precision {
    DType compute, reduce;
  };
  const Layers layers = GENERATE(Layers{}, Layers{.width = 32, .trains_bias = false});
  for (const Precision precision :
       {Precision{DType::kF32, DType::kF32}, Precision{DType::kBF16, DType::kF32},
        Precision{DType::kBF16, DType::kBF16}, Precision{DType::kF16, DType::kF32}}) {
    DataParallelOptions options{.compute = precision.compute, .reduce = precision.reduce};
    const Result want = one_step(alone(), layers, options, kRows);
    for (const auto& [name, gradient] : want.gradients) {
      if (!layers.trains_bias && name.ends_with("bias")) continue;
      const double largest = max_abs(to_f64(gradient));
      CHECK(largest >= 4);
      CHECK(largest <= 72);
      for (const float g : gradient) REQUIRE(g == std::round(g));
    }
    for (const int stage : {0, 1, 2, 3}) {
      for (const int64_t micro_batch : {kRows / group->size(), int64_t{1}}) {
        options.stage = stage;
        const Result got = one_step(*group, layers, options, micro_batch);
        REQUIRE(got.gradients.size() == want.gradients.size());
        for (const auto& [name, gradient] : want.gradients) {
          CAPTURE(name, stage, micro_batch, dtype_name(precision.compute),
                  dtype_name(precision.reduce));
          CHECK(same_bits(got.gradients.at(name), gradient));
          CHECK(same_bits(got.parameters.at(name), want.parameters.at(name)));
        }
      }
    }
  }
}

}  // namespace shale::test
