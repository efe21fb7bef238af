#include "shale/runtime/optim/muon.h"

#include <cmath>
#include <limits>

#include "shale/runtime/nn/module.h"
#include "shale/runtime/optim/clip.h"
#include "shale/runtime/tensor/tensor_impl.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/fixtures.h"
#include "shale/test/support/json.h"
#include "shale/test/support/numbers.h"
#include "shale/test/support/op_check.h"

namespace shale::test {
namespace {

using Matrix = std::vector<double>;

// Each of five steps rounds three matrices, with elements of order one, to 8 bits: 15 roundings.
constexpr double kTolerance = 15 * 0x1p-9;

struct Net : Module {
  explicit Net(const std::vector<Shape>& shapes, int64_t matrices = 1) {
    for (size_t i = 0; i < shapes.size(); ++i) {
      declare(cat("p", i), shapes[i], Init::normal(1)).matrices = matrices;
    }
  }
};

void upload(const Tensor& to, const std::vector<float>& values) {
  to.context().copy(to.data(), values.data(), to.bytes());
}

void set_gradient(const OptimShard& shard, const std::vector<float>& values) {
  upload(shard.grad, values);
  leaf_state(shard.spans[0].parameter->value).has_value = true;
}

// Returns the product a b of a [m, k] and b [k, n].
Matrix product(const Matrix& a, const Matrix& b, int64_t m, int64_t k, int64_t n) {
  Matrix c(size_t(m * n));
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t l = 0; l < k; ++l) {
      for (int64_t j = 0; j < n; ++j)
        c[size_t(i * n + j)] += a[size_t(i * k + l)] * b[size_t(l * n + j)];
    }
  }
  return c;
}

Matrix transposed(const Matrix& a, int64_t m, int64_t n) {
  Matrix t(a.size());
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) t[size_t(j * m + i)] = a[size_t(i * n + j)];
  }
  return t;
}

// Runs the published iteration in f64.
Matrix reference(Matrix x, int64_t m, int64_t n, const optim::NewtonSchulz& method) {
  double squares = 0;
  for (const double value : x) squares += value * value;
  for (double& value : x) value /= double{method.margin} * (std::sqrt(squares) + 1e-7);
  for (const optim::Quintic& step : method.steps) {
    Matrix gram = product(x, transposed(x, m, n), m, n, m);
    const Matrix square = product(gram, gram, m, m, m);
    for (size_t i = 0; i < gram.size(); ++i) {
      gram[i] = double{step.b} * gram[i] + double{step.c} * square[i];
    }
    const Matrix rest = product(gram, x, m, m, n);
    for (size_t i = 0; i < x.size(); ++i) x[i] = double{step.a} * x[i] + rest[i];
  }
  return x;
}

// Returns the largest elementwise error of orthogonalize() against the reference.
double orthogonalize_error(Context& context, const Shape& shape,
                           const optim::NewtonSchulz& method) {
  const int64_t m = shape.at(0), n = shape.at(1);
  const auto values = randn<bf16>(m * n, 7);
  const Tensor x = from_host<bf16>(context, values, shape);
  const optim::ScaledMatrix got = optim::orthogonalize(x, method, 1e-7f);
  Matrix start;
  for (const bf16 value : values) start.push_back(double{to_f32(value)});
  const Matrix want = reference(start, m, n, method);
  const auto result = to_host<bf16>(got.value);
  double error = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    error = std::max(error, std::abs(double{got.factor} * double{to_f32(result[i])} - want[i]));
  }
  return error;
}

}  // namespace

TEST_CASE("orthogonalizing agrees with the published iteration in f64, wide, tall and by panels") {
  for (const ContextOptions& options : small_contexts()) {
    Context context(options);
    for (const Shape& shape :
         {Shape{1, 1}, Shape{1, 9}, Shape{9, 1}, Shape{16, 40}, Shape{40, 16}, Shape{33, 33}}) {
      for (const auto& method : {optim::muon_polynomials(), optim::polar_express()}) {
        CAPTURE(to_string(context.device()), to_string(shape), method.margin);
        CHECK(orthogonalize_error(context, shape, method) <= kTolerance);
      }
    }
  }
  Context context(small_context());
  CHECK(orthogonalize_error(context, {300, 520}, optim::muon_polynomials()) <= kTolerance);
  CHECK(orthogonalize_error(context, {520, 300}, optim::muon_polynomials()) <= kTolerance);
}

TEST_CASE("the matrices of a batch are orthogonalized as if each were alone") {
  const auto check = [](Context& context, const Shape& shape) {
    CAPTURE(to_string(context.device()), to_string(shape));
    const int64_t count = 3, m = shape.at(0), n = shape.at(1);
    const auto values = randn<bf16>(count * m * n, 5);
    const auto solved = [&](int64_t first, int64_t matrices) {
      const auto begin = values.begin() + first * m * n;
      const Tensor x = from_host<bf16>(context, std::vector<bf16>(begin, begin + matrices * m * n),
                                       {matrices, m, n});
      const auto result = optim::orthogonalize(x, optim::muon_polynomials(), 1e-7f);
      std::vector<float> scaled;
      for (const bf16 value : to_host<bf16>(result.value)) {
        scaled.push_back(result.factor * to_f32(value));
      }
      return scaled;
    };
    const std::vector<float> all = solved(0, count);
    for (int64_t i = 0; i < count; ++i) {
      const std::vector<float> one = solved(i, 1);
      CHECK(std::equal(one.begin(), one.end(), all.begin() + i * m * n));
      Matrix start;
      for (int64_t k = 0; k < m * n; ++k) {
        start.push_back(double{to_f32(values[size_t(i * m * n + k)])});
      }
      const Matrix want = reference(start, m, n, optim::muon_polynomials());
      CHECK(max_error(one, want) <= kTolerance);
    }
  };
  for (const ContextOptions& options : small_contexts()) {
    Context context(options);
    const bool is_cpu = context.device().type == DeviceType::kCpu;
    for (const Shape& shape : {Shape{1, 9}, Shape{16, 40}, Shape{40, 16}, Shape{33, 33}}) {
      const bool wanted = optim::wants_batches(context, shape.at(0), shape.at(1));
      if (is_cpu) CHECK(wanted);
      if (wanted) check(context, shape);
    }
    CHECK_FALSE(optim::wants_batches(context, 300, 520));
  }
}

TEST_CASE("a matrix of zeros stays one, and none is none") {
  Context context(small_context());
  const Tensor x = zeros(context, {4, 6}, DType::kBF16);
  const auto got = optim::orthogonalize(x, optim::muon_polynomials(), 1e-7f);
  for (const bf16 value : to_host<bf16>(got.value)) CHECK(to_f32(value) == 0);
  CHECK(optim::orthogonalize(zeros(context, {0, 6}, DType::kBF16), {}, 1e-7f).value.numel() == 0);
  CHECK(contains(message_of<DTypeError>([&] {
                   optim::orthogonalize(zeros(context, {4, 6}, DType::kF32), {}, 1e-7f);
                 }),
                 "orthogonalize"));
}

TEST_CASE("Muon does to matrices what torch.optim.Muon does, to the rounding of its products") {
  const Json wanted = json_file(fixture_path("muon.json"));
  for (const Json& matrix : wanted["matrices"]) {
    const auto sizes = matrix["shape"].get<std::vector<int64_t>>();
    Context context(small_context(1));
    Net net({{sizes[0], sizes[1]}});
    materialize(net, context, DType::kF32, 1);
    const bool original = matrix["scale"] == "original";
    optim::Muon optimizer(
        local_shards(net, context),
        {.momentum = wanted["momentum"].get<float>(),
         .nesterov = matrix["nesterov"].get<bool>(),
         .weight_decay = wanted["weight_decay"].get<float>(),
         .scale = original ? optim::MuonScale::kOriginal : optim::MuonScale::kMatchRmsAdamW});
    const OptimShard& shard = optimizer.shards()[0];
    upload(shard.master, matrix["start"].get<std::vector<float>>());
    for (size_t step = 0; step < matrix["gradients"].size(); ++step) {
      optimizer.prepare(context, int64_t(step), wanted["lr"].get<float>());
      set_gradient(shard, matrix["gradients"][step].get<std::vector<float>>());
      optimizer.step();
      optimizer.zero_grad();
      CAPTURE(to_string(shard.spans[0].parameter->shape), step);
      const auto want = matrix["after"][step].get<std::vector<double>>();
      // Torch's matmuls are in bf16 too, but round in other places. The fixture has torch's own
      // error.
      const double torchs = matrix["error_of_torch"][step].get<double>();
      CHECK(max_error(to_host<float>(shard.master), want) <= 3 * torchs);
    }
  }
}

TEST_CASE("Muon steps what is no matrix as AdamW does, and matrices that it is told to leave") {
  const auto trained = [](bool by_muon) {
    Context context(small_context(1));
    Net net({{5}, {4, 6}, {3, 2}});
    materialize(net, context, DType::kF32, 1);
    std::unique_ptr<optim::Optimizer> optimizer;
    if (by_muon) {
      optim::MuonOptions options;
      options.matrices = [](const Parameter& parameter) { return parameter.name == "p1"; };
      optimizer = std::make_unique<optim::Muon>(local_shards(net, context), options);
    } else {
      optimizer = std::make_unique<optim::AdamW>(local_shards(net, context), optim::AdamWOptions{});
    }
    for (int step = 0; step < 3; ++step) {
      optimizer->prepare(context, step, 0.01f);
      for (const OptimShard& shard : optimizer->shards()) {
        set_gradient(shard, randn<float>(shard.grad.numel(), uint64_t(step)));
      }
      optimizer->step();
      optimizer->zero_grad();
    }
    std::vector<std::vector<float>> values;
    for (const OptimShard& shard : optimizer->shards()) {
      values.push_back(to_host<float>(shard.master));
    }
    return values;
  };
  const auto muon = trained(true), adamw = trained(false);
  CHECK(muon[0] == adamw[0]);
  CHECK(muon[1] != adamw[1]);
  CHECK(muon[2] == adamw[2]);
}

TEST_CASE("the matrices of a fused parameter are orthogonalized apart") {
  const auto stepped = [](const std::vector<Shape>& shapes, int64_t matrices) {
    Context context(small_context(1));
    Net net(shapes, matrices);
    materialize(net, context, DType::kF32, 1);
    optim::Muon optimizer(local_shards(net, context), {});
    const auto gradient = randn<float>(3 * 4 * 6, 9);
    optimizer.prepare(context, 0, 0.01f);
    size_t at = 0;
    std::vector<float> all;
    for (const OptimShard& shard : optimizer.shards()) {
      const auto count = static_cast<size_t>(shard.grad.numel());
      upload(shard.master, std::vector<float>(count, 1.f));
      set_gradient(shard, {gradient.begin() + int64_t(at), gradient.begin() + int64_t(at + count)});
      at += count;
    }
    optimizer.step();
    for (const OptimShard& shard : optimizer.shards()) {
      const auto values = to_host<float>(shard.master);
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  };
  // A tensor of three experts is stepped like three matrices.
  CHECK(stepped({{3, 4, 6}}, 1) == stepped({{4, 6}, {4, 6}, {4, 6}}, 1));
  const auto fused = stepped({{12, 6}}, 3);
  CHECK(fused == stepped({{4, 6}, {4, 6}, {4, 6}}, 1));
  CHECK(fused != stepped({{12, 6}}, 1));
}

TEST_CASE("a step of Muon whose gradient is not finite changes nothing") {
  Context context(small_context(1));
  Net net({{4, 6}});
  materialize(net, context, DType::kF32, 1);
  optim::Muon optimizer(local_shards(net, context), {});
  const OptimShard& shard = optimizer.shards()[0];
  const auto before = to_host<float>(shard.master);
  optimizer.prepare(context, 0, 0.01f);
  set_gradient(shard, std::vector<float>(24, std::numeric_limits<float>::infinity()));
  optim::clip_grad_norm(context, optimizer.shards(), 1);
  optimizer.step();
  CHECK(to_host<float>(shard.master) == before);
  for (const optim::OptimState& state : optimizer.states()) {
    CHECK(to_host<float>(state.value) == std::vector<float>(24, 0.f));
  }
}

TEST_CASE("Muon refuses parts without peers, and moments that it does not keep") {
  Context context(small_context(1));
  Net net({{4, 6}});
  materialize(net, context, DType::kF32, 1);
  const auto refused = [&](std::vector<OptimShard> shards, const optim::MuonOptions& options) {
    return message_of<ConfigError>([&] { optim::Muon muon(std::move(shards), options); });
  };
  std::vector<OptimShard> part = local_shards(net, context);
  part[0].spans[0].count = 20;
  CHECK(contains(refused(std::move(part), {}), "has 20 of the 24 elements of p0"));
  CHECK(contains(refused(local_shards(net, context), {.adamw = {.moments = optim::Moments::kBF16}}),
                 "adamw.moments must be fp32"));
}

}  // namespace shale::test
