#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>

#include "shale/base/trace.h"
#include "shale/kernels/elementwise.h"
#include "shale/kernels/fp8.h"
#include "shale/runtime/autograd/recompute.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/ops/elementwise.h"
#include "shale/runtime/ops/linear.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/op_check.h"
#include "shale/test/support/ref_gemm.h"

namespace shale::test {
namespace {

constexpr int64_t kRows = 150, kIn = 140, kOut = 136;

struct Block {
  int64_t rows, columns;
};
constexpr Block kAcross = {1, 128}, kDown = {128, 1}, kSquare = {128, 128}, kWhole = {1000, 1000};

// A matrix in f64; its values are bf16 values, or quantized like GEMM operands.
struct Numbers {
  int64_t rows, columns;
  std::vector<double> at;

  template <typename Format = kernels::e4m3>
  Numbers rounded(Block block) const {
    Numbers result = *this;
    for (int64_t i = 0; i < rows * columns; ++i) {
      const int64_t row = i / columns / block.rows * block.rows;
      const int64_t column = i % columns / block.columns * block.columns;
      float largest = 0;
      for (int64_t r = row; r < std::min(rows, row + block.rows); ++r) {
        for (int64_t c = column; c < std::min(columns, column + block.columns); ++c) {
          largest = std::max(largest, float(std::abs(at[size_t(r * columns + c)])));
        }
      }
      const double scale =
          kernels::power_of_two(kernels::fp8_exponent<Format>(std::bit_cast<uint32_t>(largest)));
      result.at[size_t(i)] = kernels::round_to_fp8<Format>(float(at[size_t(i)] / scale)) * scale;
    }
    return result;
  }
  Numbers transposed() const {
    Numbers result = {columns, rows, {}};
    for (int64_t j = 0; j < columns; ++j) {
      for (int64_t i = 0; i < rows; ++i) result.at.push_back(at[size_t(i * columns + j)]);
    }
    return result;
  }
};

// Adjacent rows and columns have different magnitudes. If values share a scale, those much smaller
// than the maximum of their block lose bits, which the test sees.
Numbers random_numbers(int64_t rows, int64_t columns, uint64_t seed, double std = 1) {
  Numbers numbers = {rows, columns, {}};
  const std::vector<double> values = randn<double>(rows * columns, seed, 0, std);
  for (int64_t i = 0; i < rows * columns; ++i) {
    const double small = (i / columns % 3 == 1 ? 1e-4 : 1) * (i % columns % 3 == 2 ? 1e-4 : 1);
    numbers.at.push_back(to_f64(bf16(float(values[size_t(i)] * small))));
  }
  return numbers;
}

Tensor tensor_of(Context& context, const Numbers& x, bool is_leaf) {
  std::vector<bf16> values;
  for (const double number : x.at) values.push_back(bf16(float(number)));
  return from_host<bf16>(context, values, {x.rows, x.columns}).set_requires_grad(is_leaf);
}

// Returns true if `found` is the product a b, computed in f32 and rounded with a relative error of
// `unit`.
template <typename T>
bool is_product(const std::vector<T>& found, const Numbers& a, const Numbers& b, double unit) {
  const RefProduct want = ref_product(a.at, b.at, a.rows, b.columns, a.columns);
  for (size_t i = 0; i < found.size(); ++i) {
    const double allowed =
        sum_error(a.columns, 3, want.magnitude[i]) + unit * std::abs(want.value[i]);
    if (!(std::abs(to_f64(found[i]) - want.value[i]) <= allowed)) return false;
  }
  return found.size() == want.value.size();
}

}  // namespace

// Each of the three GEMMs has operands that are quantized along the dimension that it sums, on the
// CPU and on GPUs with fp8 GEMMs. With one scale per tensor, all three GEMMs use the same quantized
// values.
TEST_CASE("linear with fp8 operands makes each product of what is rounded for it", "[ops]") {
  using kernels::e5m2;
  constexpr double kBf16 = 0x1p-8, kF32 = 0x1p-23;
  const Numbers x = random_numbers(kRows, kIn, 1), w = random_numbers(kOut, kIn, 2);
  const Numbers dy = random_numbers(kRows, kOut, 4, 1e-3);
  for (const ContextOptions& options : small_contexts()) {
    if (options.device.type != DeviceType::kCpu && options.device.arch != 90) continue;
    Context context(options);
    for (const Operands operands : {Operands::kFp8, Operands::kFp8Tensor}) {
      CAPTURE(to_string(options.device), int(operands));
      const Tensor x_leaf = tensor_of(context, x, true), w_leaf = tensor_of(context, w, true);
      const Tensor y = linear(x_leaf, w_leaf, {}, {}, operands);
      backward(y, tensor_of(context, dy, false));
      const auto y_found = to_host<bf16>(y);
      const auto dx_found = to_host<float>(x_leaf.grad()), dw_found = to_host<float>(w_leaf.grad());
      if (operands == Operands::kFp8Tensor) {
        const Numbers in = x.rounded(kWhole), by = w.rounded(kWhole);
        const Numbers grad = dy.rounded<e5m2>(kWhole);
        CHECK(is_product(y_found, in, by.transposed(), kBf16));
        CHECK(is_product(dx_found, grad, by, kBf16));
        CHECK(is_product(dw_found, grad.transposed(), in, kF32));
        CHECK_FALSE(is_product(dx_found, dy.rounded(kWhole), by, kBf16));
        continue;
      }
      CHECK(is_product(y_found, x.rounded(kAcross), w.rounded(kSquare).transposed(), kBf16));
      CHECK(is_product(dx_found, dy.rounded(kAcross), w.rounded(kSquare), kBf16));
      CHECK(is_product(dw_found, dy.rounded(kDown).transposed(), x.rounded(kDown), kF32));
      // Operands that are not quantized would give other results.
      CHECK_FALSE(is_product(y_found, x, w.transposed(), kBf16));
      CHECK_FALSE(is_product(dx_found, dy.rounded(kDown), w.rounded(kSquare), kBf16));
      CHECK_FALSE(is_product(dw_found, dy.rounded(kAcross).transposed(), x.rounded(kDown), kF32));
    }
  }
}

TEST_CASE("linear with fp8 operands adds bias and residual as it is, and needs bf16", "[ops]") {
  Context context(small_context());
  const Tensor x = tensor_of(context, random_numbers(kRows, kIn, 1), false);
  const Tensor w = tensor_of(context, random_numbers(kOut, kIn, 2), false);
  const Tensor residual = tensor_of(context, random_numbers(kRows, kOut, 3), false);
  const std::vector<bf16> biases = randn<bf16>(kOut, 4);
  const Tensor bias = from_host<bf16>(context, biases, {kOut}).set_requires_grad(true);
  const Tensor dy = tensor_of(context, random_numbers(kRows, kOut, 5), false);
  const Tensor y = linear(x, w, bias, residual, Operands::kFp8);
  const auto plain = to_host<bf16>(linear(x, w, {}, {}, Operands::kFp8));
  const auto found = to_host<bf16>(y);
  const auto residuals = to_host<bf16>(residual);
  bool is_sum = true;
  for (size_t i = 0; i < found.size(); ++i) {
    const double want = to_f64(plain[i]) + to_f64(biases[i % size_t(kOut)]) + to_f64(residuals[i]);
    const double most = std::abs(to_f64(plain[i])) + std::abs(want) + 1;
    is_sum = is_sum && std::abs(to_f64(found[i]) - want) <= 0x1p-8 * most;
  }
  CHECK(is_sum);
  backward(y, dy);
  const Tensor other = from_host<bf16>(context, biases, {kOut}).set_requires_grad(true);
  backward(linear(x, w, other, residual), dy);
  CHECK(to_host<float>(bias.grad()) == to_host<float>(other.grad()));

  const Tensor wide = random_leaf(context, {4, 128}, 1), wide_w = random_leaf(context, {8, 128}, 2);
  const auto in_f32 = [&] { return linear(wide, wide_w, {}, {}, Operands::kFp8); };
  CHECK(contains(message_of<DTypeError>(in_f32), "expected bf16"));
}

TEST_CASE("linear with fp8 operands keeps the transpose of x, rounded, in place of x", "[ops]") {
  Context context(small_context());
  const auto held = [&] {
    return context.allocator().stats().current[size_t(MemoryTag::kActivation)];
  };
  constexpr int64_t kResult = 256 * 64 * 2;
  constexpr int64_t kCodes = 128 * 256, kScales = 2 * 128 * 4;
  const Numbers values = random_numbers(256, 128, 1);
  const Tensor w = tensor_of(context, random_numbers(64, 128, 2), true);
  const Tensor frozen = tensor_of(context, random_numbers(64, 128, 2), false);
  const Tensor dy = tensor_of(context, random_numbers(256, 64, 3), false);
  for (const Operands operands : {Operands::kFp8, Operands::kFp8Tensor}) {
    CAPTURE(int(operands));
    const int64_t before = held();
    {
      const Tensor y = linear(tensor_of(context, values, false), w, {}, {}, operands);
      CHECK(held() - before == kResult + kCodes + kScales);
    }
    {
      const Tensor x = tensor_of(context, values, true);
      const Tensor y = linear(x, frozen, {}, {}, operands);
      CHECK(held() - before == kResult);
    }
    // If x is recomputed, neither its values nor its codes are kept, and the bits stay the same.
    const auto gradient = [&](Recompute level) {
      const Tensor x = tensor_of(context, values, true);
      const Tensor own = tensor_of(context, random_numbers(64, 128, 2), true);
      const int64_t inputs = held();
      const Tensor y = recompute(
          level, [&](const Tensor& in) { return linear(gelu(in), own, {}, {}, operands); }, x);
      const int64_t kept = held() - inputs - kResult;
      CHECK(kept == (level == Recompute::kNone ? kCodes + kScales : 0));
      backward(y, dy);
      std::vector<float> both = to_host<float>(x.grad());
      const std::vector<float> of_w = to_host<float>(own.grad());
      both.insert(both.end(), of_w.begin(), of_w.end());
      return both;
    };
    const std::vector<float> want = gradient(Recompute::kNone);
    CHECK(gradient(Recompute::kSelective) == want);
    CHECK(gradient(Recompute::kFull) == want);
  }
}

// Runs two GEMMs of the same x. Compares their results, and the memory that they keep besides the
// results.
TEST_CASE("products of one tensor share its operands of fp8 where they are told to", "[ops]") {
  Context context(small_context());
  Tracer tracer;
  context.set_tracer(&tracer);
  const auto held = [&] {
    return context.allocator().stats().current[size_t(MemoryTag::kActivation)];
  };
  const auto times_quantized = [&](const std::function<void()>& work) {
    tracer.reset();
    work();
    const auto totals = tracer.totals();
    const auto found = totals.find("quantize_fp8");
    return found == totals.end() ? 0 : found->second.calls;
  };
  constexpr int64_t kResults = 2 * 256 * 64 * 2, kKept = 128 * 256 + 2 * 128 * 4;
  const Numbers values = random_numbers(256, 128, 1);
  const Tensor dy = tensor_of(context, random_numbers(256, 64, 3), false);
  const Operands operands = GENERATE(Operands::kFp8, Operands::kFp8Tensor);
  const auto level = GENERATE(Recompute::kNone, Recompute::kSelective, Recompute::kFull);
  const bool is_first_frozen = GENERATE(false, true);
  CAPTURE(int(operands), int(level), is_first_frozen);
  const auto gradients = [&](bool shares, int64_t forward_quantized) {
    const Tensor x = tensor_of(context, values, true);
    const Tensor first = tensor_of(context, random_numbers(64, 128, 2), !is_first_frozen);
    const Tensor second = tensor_of(context, random_numbers(64, 128, 4), true);
    const int64_t inputs = held();
    Tensor y, z;
    const int64_t quantized = times_quantized([&] {
      const std::vector<Tensor> results =
          recompute(level,
                    [&](const std::vector<Tensor>& in) {
                      const Tensor h = gelu(in[0]);
                      std::optional<SharedInputs> shared;
                      if (shares) shared.emplace(std::vector<Tensor>{h});
                      return std::vector<Tensor>{linear(h, first, {}, {}, operands),
                                                 linear(h, second, {}, {}, operands)};
                    },
                    {x});
      y = results[0], z = results[1];
    });
    CHECK(quantized == forward_quantized);
    const int64_t products = shares || is_first_frozen ? 1 : 2;
    CHECK(held() - inputs - kResults == (level == Recompute::kNone ? products * kKept : 0));
    backward(add(mul(y, dy), z), dy);
    std::vector<float> all = to_host<float>(x.grad());
    for (const Tensor& part : {first, second}) {
      if (!part.grad().defined()) continue;
      const std::vector<float> more = to_host<float>(part.grad());
      all.insert(all.end(), more.begin(), more.end());
    }
    return all;
  };
  // Both weights are quantized, and x for each GEMM. If the first weight is frozen, its GEMM needs
  // no transposed x, so the second GEMM quantizes it.
  const bool is_late = is_first_frozen && level != Recompute::kSelective;
  const std::vector<float> want = gradients(false, 4);
  CHECK(gradients(true, is_late ? 4 : 3) == want);
}

TEST_CASE("operands of fp8 are shared by products of one version of a tensor alone", "[ops]") {
  Context context(small_context());
  const Tensor x = tensor_of(context, random_numbers(256, 128, 1), false);
  const Tensor other = tensor_of(context, random_numbers(256, 128, 5), false);
  const Tensor w = tensor_of(context, random_numbers(64, 128, 2), false);
  const auto product = [&](const Tensor& of, Operands operands) {
    return to_host<bf16>(linear(of, w, {}, {}, operands));
  };
  const auto want = product(x, Operands::kFp8), want_tensor = product(x, Operands::kFp8Tensor);
  const auto want_other = product(other, Operands::kFp8);
  const int64_t before = context.allocator().stats().current[size_t(MemoryTag::kActivation)];
  {
    const SharedInputs shared({x});
    const SharedInputs again({x});
    CHECK(same_bits(product(x, Operands::kFp8), want));
    CHECK(same_bits(product(x, Operands::kFp8Tensor), want_tensor));
    CHECK(same_bits(product(x, Operands::kFp8), want));
    kernels::copy(x.exec(), {.x = other, .y = x});
    x.bump_version();
    CHECK(same_bits(product(x, Operands::kFp8), want_other));
  }
  CHECK(context.allocator().stats().current[size_t(MemoryTag::kActivation)] == before);
}

// Each update follows two micro-batches. The second micro-batch uses the weight's quantized
// operands again. An operand is stored at its first use.
TEST_CASE("a weight's operands of fp8 are kept while it does not change", "[ops]") {
  Context context(small_context());
  const auto workspace = [&] {
    return context.allocator().stats().current[size_t(MemoryTag::kWorkspace)];
  };
  const Numbers x = random_numbers(kRows, kIn, 1), first = random_numbers(kOut, kIn, 2);
  const Numbers second = random_numbers(kOut, kIn, 3);
  const Tensor dy = tensor_of(context, random_numbers(kRows, kOut, 4), false);
  const Tensor other = tensor_of(context, second, false);
  // Returns the results of a micro-batch: y and the gradient of x. Weight gradients add up.
  const auto micro_batch = [&](const Tensor& w, Operands operands) {
    const Tensor in = tensor_of(context, x, true);
    const Tensor y = linear(in, w, {}, {}, operands);
    backward(y, dy);
    std::vector<float> all = to_host<float>(cast(y, DType::kF32));
    const std::vector<float> dx = to_host<float>(in.grad());
    all.insert(all.end(), dx.begin(), dx.end());
    return all;
  };
  const auto fresh = [&](const Numbers& values, Operands operands) {
    return micro_batch(tensor_of(context, values, true), operands);
  };
  const Operands operands = GENERATE(Operands::kFp8, Operands::kFp8Tensor);
  const std::vector<float> want = fresh(first, operands), want_other = fresh(second, operands);
  const int64_t before = workspace();
  const Tensor w = tensor_of(context, first, true);
  CHECK(micro_batch(w, operands) == want);
  CHECK(workspace() == before);  // operands that are used once are not stored
  CHECK(micro_batch(w, operands) == want);
  const int64_t kept = workspace() - before;
  CHECK(kept >= 2 * kOut * kIn);

  // Without a version bump, a change of the weight is not noticed. After the bump, new operands
  // replace the old ones in the same memory.
  Tensor values = w.detach();
  {
    const View to = values.view();
    kernels::axpby(context.exec(), {.a = other, .y = to});
  }
  CHECK(micro_batch(w, operands) == want);
  w.bump_version();  // marks the weight as changed, as optimizers do
  CHECK(micro_batch(w, operands) == want_other);
  CHECK(workspace() - before == kept);
  // Operands of another fp8 format are stored separately, even for the same weight.
  const Operands others = operands == Operands::kFp8 ? Operands::kFp8Tensor : Operands::kFp8;
  CHECK(micro_batch(w, others) == fresh(second, others));
  CHECK(micro_batch(w, operands) == want_other);
}

}  // namespace shale::test
