#include "shale/runtime/ops/swiglu.h"

#include <cmath>

#include "shale/runtime/autograd/recompute.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/nn/layers.h"
#include "shale/runtime/ops/elementwise.h"
#include "shale/runtime/ops/linear.h"
#include "shale/runtime/ops/reduce.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/numbers.h"
#include "shale/test/support/op_check.h"

namespace shale::test {
namespace {

using Vec = std::vector<double>;
using Values = std::vector<Vec>;

struct Sizes {
  int64_t rows, width, hidden, out;
};

// Product of x [rows, in] and the transpose of w [out, in].
Vec matmul(const Vec& x, const Vec& w, int64_t rows, int64_t in, int64_t out) {
  Vec y(size_t(rows * out));
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t o = 0; o < out; ++o) {
      for (int64_t i = 0; i < in; ++i)
        y[size_t(r * out + o)] += x[size_t(r * in + i)] * w[size_t(o * in + i)];
    }
  }
  return y;
}

// Reference with the inputs x, w_gate, w_up, w_down and optionally residual.
Vec reference(const Values& in, const Sizes& n) {
  Vec hidden = matmul(in[0], in[1], n.rows, n.width, n.hidden);
  const Vec up = matmul(in[0], in[2], n.rows, n.width, n.hidden);
  for (size_t i = 0; i < hidden.size(); ++i) hidden[i] *= up[i] / (1 + std::exp(-hidden[i]));
  Vec y = matmul(hidden, in[3], n.rows, n.hidden, n.out);
  if (in.size() > 4) {
    for (size_t i = 0; i < y.size(); ++i) y[i] += in[4][i];
  }
  return y;
}

OpCase swiglu_case(const Sizes& n, bool residual) {
  OpCase op_case{
      .name = cat("swiglu ", n.rows, " ", n.width, " ", n.hidden, " residual ", residual),
      .inputs = {{n.rows, n.width}, {n.hidden, n.width}, {n.hidden, n.width}, {n.out, n.hidden}},
      .output = {n.rows, n.out},
      .op =
          [](const std::vector<Tensor>& x) {
            return swiglu(x[0], x[1], x[2], x[3], x.size() > 4 ? x[4] : Tensor());
          },
      .reference = [n](const Values& x) { return reference(x, n); }};
  if (residual) op_case.inputs.push_back({n.rows, n.out});
  return op_case;
}

// Allows for f32 sums of up to 37 terms, with a margin for the functions in between. In 16 bits it
// allows four roundings (see ops.cpp): of a GEMM, of the activation or its gradient, of dx from the
// gate, and of dx.
void expect_agrees(const ContextOptions& options, const OpCase& op_case) {
  const std::pair<DType, double> dtypes[] = {
      {DType::kF32, 2e-5}, {DType::kBF16, 4 * ulp<bf16>()}, {DType::kF16, 4 * ulp<f16>()}};
  for (const auto& [dtype, tolerance] : dtypes) {
    CAPTURE(op_case.name, dtype_name(dtype), to_string(options.device));
    Context context(options);
    const OpErrors errors = check_op(context, op_case, dtype);
    CHECK(errors.complete);
    CHECK(errors.forward <= tolerance);
    CHECK(errors.backward <= tolerance);
  }
}

std::vector<ContextOptions> contexts() {
  ContextOptions cpu = small_context(), ampere = cpu, hopper = cpu;
  ampere.device = {.type = DeviceType::kEmu, .arch = 80};
  hopper.device = {.type = DeviceType::kEmu, .arch = 90};
  return {cpu, ampere, hopper};
}

struct Block : Module {
  Block()
      : mlp(this, "mlp",
            {.width = 8,
             .hidden = 24,
             .init = Init::normal(0.5f),
             .down_init = Init::normal(0.25f)}) {}
  nn::SwiGlu mlp;
};

std::vector<float> grad_of(const Parameter& parameter) {
  return to_host<float>(parameter.value.grad());
}

}  // namespace

TEST_CASE("swiglu agrees with f64, with a residual or without, on CPUs and GPUs") {
  for (const ContextOptions& options : contexts()) {
    for (const bool residual : {false, true}) {
      expect_agrees(options, swiglu_case({3, 5, 7, 4}, residual));
    }
    expect_agrees(options, swiglu_case({1, 1, 1, 1}, false));
    // 37 columns: the last tile of 16 columns is partial.
    expect_agrees(options, swiglu_case({2, 3, 37, 1}, true));
  }
}

TEST_CASE("swiglu over no rows is empty, and its weights' gradients are zero") {
  for (const ContextOptions& options : contexts()) {
    expect_agrees(options, swiglu_case({0, 5, 7, 4}, true));
  }
}

TEST_CASE("swiglu is what its parts are one by one") {
  for (const ContextOptions& options : contexts()) {
    Context context(options);
    CAPTURE(to_string(options.device));
    const auto x = random_leaf(context, {2, 3, 8}, 1);
    const auto w_gate = random_leaf(context, {24, 8}, 2), w_up = random_leaf(context, {24, 8}, 3);
    const auto w_down = random_leaf(context, {8, 24}, 4);
    const Tensor y = swiglu(x, w_gate, w_up, w_down, x);
    CHECK(y.shape() == x.shape());
    const auto got = to_host<float>(y);
    const auto gate = to_f64(to_host<float>(linear(x, w_gate)));
    auto hidden = to_host<float>(linear(x, w_up));
    for (size_t i = 0; i < hidden.size(); ++i) {
      hidden[i] = float(hidden[i] * gate[i] / (1 + std::exp(-gate[i])));
    }
    const Tensor act = from_host<float>(context, hidden, {2, 3, 24});
    const auto want = to_f64(to_host<float>(linear(act, w_down, {}, x)));
    // Op and test round SiLU differently, by a few ulp, in each of 24 summed terms below 100.
    CHECK(max_error(got, want) <= 24 * 4 * 100 * 0x1p-24);
  }
}

TEST_CASE("gradients that nobody needs are not computed, and the others are the same") {
  Context context(small_context());
  const auto run = [&](bool trains_x, bool trains_up) {
    auto x = random_leaf(context, {3, 5}, 1), w_up = random_leaf(context, {7, 5}, 3);
    x.set_requires_grad(trains_x);
    w_up.set_requires_grad(trains_up);
    const auto w_gate = random_leaf(context, {7, 5}, 2), w_down = random_leaf(context, {4, 7}, 4);
    backward(sum(swiglu(x, w_gate, w_up, w_down)));
    CHECK(x.grad().defined() == trains_x);
    CHECK(w_up.grad().defined() == trains_up);
    return to_host<float>(w_gate.grad());
  };
  const auto want = run(true, true);
  CHECK(same_bits(run(false, true), want));
  CHECK(same_bits(run(false, false), want));
}

TEST_CASE("swiglu's gradients have the same bits when its activation is computed again") {
  for (const ContextOptions& options : contexts()) {
    CAPTURE(to_string(options.device));
    const auto gradients = [&](Recompute mode) {
      Context context(options);
      const auto x = random_leaf(context, {3, 8}, 1);
      const auto w_gate = random_leaf(context, {24, 8}, 2), w_up = random_leaf(context, {24, 8}, 3);
      const auto w_down = random_leaf(context, {8, 24}, 4);
      backward(sum(recompute(
          mode, [&](const Tensor& in) { return swiglu(in, w_gate, w_up, w_down); }, x)));
      std::vector<float> all;
      for (const Tensor& leaf : {x, w_gate, w_up, w_down}) {
        const auto grad = to_host<float>(leaf.grad());
        all.insert(all.end(), grad.begin(), grad.end());
      }
      return all;
    };
    const auto want = gradients(Recompute::kNone);
    CHECK(same_bits(gradients(Recompute::kSelective), want));
    CHECK(same_bits(gradients(Recompute::kFull), want));
  }
}

TEST_CASE("swiglu names the input that is wrong") {
  Context context(small_context());
  const auto x = random_leaf(context, {3, 5}, 1), w = random_leaf(context, {7, 5}, 2);
  const auto down = random_leaf(context, {4, 7}, 3);
  const auto error = [&](auto&& call) { return message_of<ShapeError>(call); };
  CHECK(error([&] {
          swiglu(x, random_leaf(context, {7, 6}, 4), w, down);
        }) == "swiglu: w_gate is [7,6], expected [7,5]");
  CHECK(error([&] {
          swiglu(x, w, random_leaf(context, {8, 5}, 4), down);
        }) == "swiglu: w_up is [8,5], expected [7,5]");
  CHECK(error([&] { swiglu(x, w, w, w); }) == "swiglu: w_down is [7,5], expected [7,7]");
  CHECK(error([&] { swiglu(x, w, w, down, x); }) == "swiglu: residual is [3,5], expected [3,4]");
  CHECK(contains(message_of<DTypeError>([&] { swiglu(x, w, cast(w, DType::kBF16), down); }),
                 "swiglu: w_up"));
}

TEST_CASE("a SwiGlu module has the names and shapes of published Llama weights") {
  Block block;
  nn::SwiGlu& mlp = block.mlp;
  std::vector<std::string> names;
  for (const Parameter* parameter : mlp.parameters()) names.push_back(parameter->full_name());
  CHECK(names == std::vector<std::string>{"mlp.gate_proj.weight", "mlp.up_proj.weight",
                                          "mlp.down_proj.weight"});
  CHECK(mlp.gate_proj.weight.shape == Shape{24, 8});
  CHECK(mlp.up_proj.weight.shape == Shape{24, 8});
  CHECK(mlp.down_proj.weight.shape == Shape{8, 24});
  CHECK(mlp.gate_proj.weight.decay);
}

TEST_CASE("a SwiGlu module's values and gradients are the op's") {
  Context context(small_context());
  Block block;
  nn::SwiGlu& mlp = block.mlp;
  materialize(block, context, DType::kF32, 1);
  const auto x = random_leaf(context, {3, 8}, 1), residual = random_leaf(context, {3, 8}, 2);
  const auto weights = random_leaf(context, {3, 8}, 3).detach();
  const Tensor y = mlp.forward(x, residual);
  backward(sum(mul(y, weights)));

  const auto copy_of = [&](const Parameter& p) {
    return leaf(context, p.shape, to_host<float>(p.value));
  };
  const auto gate = copy_of(mlp.gate_proj.weight), up = copy_of(mlp.up_proj.weight);
  const auto down = copy_of(mlp.down_proj.weight);
  const auto x2 = leaf(context, x.shape(), to_host<float>(x));
  const Tensor want = swiglu(x2, gate, up, down, residual.detach());
  backward(sum(mul(want, weights)));
  CHECK(same_bits(to_host<float>(y), to_host<float>(want)));
  CHECK(same_bits(to_host<float>(x.grad()), to_host<float>(x2.grad())));
  CHECK(same_bits(to_host<float>(residual.grad()), to_host<float>(weights)));
  CHECK(same_bits(grad_of(mlp.gate_proj.weight), to_host<float>(gate.grad())));
  CHECK(same_bits(grad_of(mlp.up_proj.weight), to_host<float>(up.grad())));
  CHECK(same_bits(grad_of(mlp.down_proj.weight), to_host<float>(down.grad())));
}

TEST_CASE("a linear layer may have no bias") {
  Context context(small_context());
  Module root;
  nn::Linear projection(&root, "q_proj", 5, 4, Init::normal(0.5f), nn::Bias::kNo);
  materialize(root, context, DType::kF32, 1);
  CHECK(projection.parameters().size() == 1);
  const auto x = random_leaf(context, {3, 5}, 1), residual = random_leaf(context, {3, 4}, 2);
  CHECK(same_bits(to_host<float>(projection.forward(x, residual)),
                  to_host<float>(linear(x, projection.weight.value, {}, residual))));
}

}  // namespace shale::test
