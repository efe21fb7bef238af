#include "shale/kernels/fp8.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "shale/base/error.h"
#include "shale/test/kernels/gemm_run.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/kernels.h"

namespace shale::test {
namespace {

using kernels::e4m3;
using kernels::e5m2;
using kernels::Fp8Blocks;
using kernels::Fp8Format;
using kernels::Fp8Operand;

// Which numbers of an operand share a scale, and its number format.
struct Kind {
  Fp8Blocks blocks = Fp8Blocks::kLines;
  Fp8Format format = Fp8Format::kE4M3;
};
constexpr Kind kLines, kSquares{Fp8Blocks::kSquares}, kTensor{Fp8Blocks::kTensor},
    kGradient{Fp8Blocks::kTensor, Fp8Format::kE5M2};

// Returns the value of a code by the format's definition, independent of the kernels.
double number_of(int code, Fp8Format format) {
  const bool is_e4m3 = format == Fp8Format::kE4M3;
  const int mantissa_bits = is_e4m3 ? 3 : 2, one = 1 << mantissa_bits, bias = is_e4m3 ? 7 : 15;
  const double sign = (code & 128) != 0 ? -1 : 1;
  const int exponent = (code & 127) / one, mantissa = code % one;
  if (is_e4m3 && (code & 127) == 127) return std::nan("");
  if (!is_e4m3 && exponent == 31) return mantissa == 0 ? sign * HUGE_VAL : std::nan("");
  if (exponent == 0) return sign * mantissa * std::exp2(1 - bias - mantissa_bits);
  return sign * (one + mantissa) * std::exp2(exponent - bias - mantissa_bits);
}
double largest_of(Fp8Format format) {
  return format == Fp8Format::kE4M3 ? 448 : 57344;
}

// Returns the nearest finite number of the format; a tie goes to the even code.
double nearest(double x, Fp8Format format) {
  int best = 0;
  for (int code = 0; code < 256; ++code) {
    const double found = std::abs(number_of(code, format) - x);
    const double least = std::abs(number_of(best, format) - x);
    if (found < least || (found == least && code % 2 == 0 && best % 2 == 1)) best = code;
  }
  return number_of(best, format);
}

// An operand in device memory, initialized to codes of NaN and scales of 0.
class OperandArrays {
 public:
  OperandArrays(const Exec& exec, int64_t lines, int64_t length, const Kind& kind)
      : lines_(lines),
        length_(length),
        kind_(kind),
        codes_(exec, std::vector<uint8_t>(size_t(lines * codes_stride()), kernels::kFp8Nan)),
        scales_(exec, std::vector<float>(size_t(scale_rows() * scales_stride()))) {}

  Fp8Operand operand() const {
    return {.codes = codes_.view({lines_, length_}, {codes_stride(), 1}),
            .scales = scales_.view({scale_rows(), lines_}, {scales_stride(), 1}),
            .blocks = kind_.blocks,
            .format = kind_.format};
  }
  bool margins_intact() const { return codes_.margins_intact() && scales_.margins_intact(); }

  // Returns the content of the lines, without the padding between them.
  std::vector<uint8_t> codes() const {
    const std::vector<uint8_t> memory = codes_.download();
    std::vector<uint8_t> codes;
    for (int64_t i = 0; i < lines_; ++i) {
      const auto line = memory.begin() + i * codes_stride();
      codes.insert(codes.end(), line, line + length_);
    }
    return codes;
  }
  // Returns true if all lines end with zeros.
  bool is_padded() const {
    const std::vector<uint8_t> memory = codes_.download();
    for (int64_t i = 0; i < lines_ * codes_stride(); ++i) {
      if (i % codes_stride() >= length_ && memory[size_t(i)] != 0) return false;
    }
    return true;
  }
  std::vector<float> scales() const {
    const std::vector<float> memory = scales_.download();
    std::vector<float> scales;
    for (int64_t i = 0; i < scale_rows(); ++i) {
      const auto row = memory.begin() + i * scales_stride();
      scales.insert(scales.end(), row, row + lines_);
    }
    return scales;
  }
  // Returns the operand's numbers, [lines, length].
  std::vector<double> numbers() const {
    const std::vector<uint8_t> codes = this->codes();
    const std::vector<float> scales = this->scales();
    std::vector<double> numbers;
    for (int64_t i = 0; i < int64_t(codes.size()); ++i) {
      const double scale = scales[size_t(i % length_ / 128 * lines_ + i / length_)];
      numbers.push_back(number_of(codes[size_t(i)], kind_.format) * scale);
    }
    return numbers;
  }

 private:
  int64_t codes_stride() const { return kernels::fp8_codes_stride(length_); }
  int64_t scales_stride() const { return kernels::fp8_scales_stride(lines_); }
  int64_t scale_rows() const { return kernels::fp8_scale_rows(length_); }

  int64_t lines_, length_;
  Kind kind_;
  DeviceArray<uint8_t> codes_;
  DeviceArray<float> scales_;
};

struct Block {
  int64_t rows, columns;
};

// Returns x [rows, columns] quantized in f64, block by block.
std::vector<double> rounded(const std::vector<bf16>& x, int64_t rows, int64_t columns, Block block,
                            Fp8Format format) {
  std::vector<double> y(x.size());
  for (int64_t r = 0; r < rows; r += block.rows) {
    for (int64_t c = 0; c < columns; c += block.columns) {
      const auto for_block = [&](auto&& fn) {
        for (int64_t i = r; i < std::min(rows, r + block.rows); ++i) {
          for (int64_t j = c; j < std::min(columns, c + block.columns); ++j) {
            fn(size_t(i * columns + j));
          }
        }
      };
      double largest = 0;
      for_block([&](size_t at) { largest = std::max(largest, std::abs(to_f64(x[at]))); });
      const double scale =
          largest == 0 ? 1 : std::exp2(std::ceil(std::log2(largest / largest_of(format))));
      for_block([&](size_t at) { y[at] = nearest(to_f64(x[at]) / scale, format) * scale; });
    }
  }
  return y;
}

template <typename T>
std::vector<T> transpose(const std::vector<T>& x, int64_t rows, int64_t columns) {
  std::vector<T> y;
  for (int64_t j = 0; j < columns; ++j) {
    for (int64_t i = 0; i < rows; ++i) y.push_back(x[size_t(i * columns + j)]);
  }
  return y;
}

// Makes values in which adjacent blocks have different magnitudes.
std::vector<bf16> uneven(int64_t count, int seed) {
  std::vector<bf16> values = randn<bf16>(count, uint64_t(seed));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = bf16(float(to_f64(values[i])) * (i / 128 % 3 == 1 ? 1e-4f : 3.0f));
  }
  return values;
}

// Returns the CPU, and every device that has fp8 GEMMs.
std::vector<Exec> devices_of_products() {
  std::vector<Exec> execs = devices_with({&kernels::fp8_gemm});
  std::erase_if(execs, [](const Exec& exec) {
    return exec.device.type != DeviceType::kCpu && exec.device.arch != 90;
  });
  REQUIRE_FALSE(execs.empty());
  return execs;
}

}  // namespace

namespace {

template <typename Number>
void check_numbers(Fp8Format format) {
  const auto number = [format](int code) { return number_of(code, format); };
  const auto rounded_to = [](double x) { return double(kernels::round_to_fp8<Number>(float(x))); };
  for (int code = 0; code < 256; ++code) {
    const auto bits = static_cast<uint8_t>(code);
    const double x = number(code), found = kernels::decoded(Number{bits});
    CAPTURE(code, x, found);
    const uint8_t again = kernels::fp8_code<Number>(kernels::decoded(Number{bits}));
    if (!std::isfinite(x)) {
      CHECK((std::isnan(x) ? std::isnan(found) : found == x));
      CHECK(std::isnan(number(again)));
      continue;
    }
    CHECK((found == x && std::signbit(found) == std::signbit(x)));
    CHECK(again == bits);
    CHECK(rounded_to(x) == x);
    const double next = number(code + 1);
    if (!std::isfinite(next) || code == 127) continue;
    const auto half = float((x + next) / 2);
    CHECK(rounded_to(half) == (code % 2 == 0 ? x : next));
    CHECK(rounded_to(std::nextafter(half, float(x))) == x);
    CHECK(rounded_to(std::nextafter(half, float(next))) == next);
  }
  const auto exponent = [](double x) {
    return kernels::fp8_exponent<Number>(std::bit_cast<uint32_t>(float(x)));
  };
  const double largest = largest_of(format);
  CHECK(exponent(largest) == 0);
  CHECK(exponent(std::nextafter(float(largest), 1e9f)) == 1);
  CHECK(exponent(largest / 2) == -1);
  CHECK(exponent(0) == -100);
  CHECK(std::isnan(kernels::power_of_two(exponent(HUGE_VAL))));
  CHECK(std::isnan(kernels::inverse_power_of_two(exponent(HUGE_VAL))));
}

}  // namespace

TEST_CASE("codes of E4M3 and E5M2 are the numbers of their definition, rounded to the nearest",
          "[kernels]") {
  check_numbers<e4m3>(Fp8Format::kE4M3);
  check_numbers<e5m2>(Fp8Format::kE5M2);
}

// Quantizes rows and columns in one call, and each alone.
TEST_CASE("quantize_fp8 has the scale of each block, or of x, for x and its transpose, anywhere",
          "[kernels]") {
  const Kind kind = GENERATE(kLines, kSquares, kTensor, kGradient);
  const auto [rows, columns] =
      GENERATE(std::pair<int64_t, int64_t>{0, 128}, std::pair<int64_t, int64_t>{1, 1},
               std::pair<int64_t, int64_t>{3, 200}, std::pair<int64_t, int64_t>{130, 129},
               std::pair<int64_t, int64_t>{128, 128}, std::pair<int64_t, int64_t>{136, 272});
  const std::vector<bf16> values = uneven(rows * columns, 7);
  const bool of_tensor = kind.blocks == Fp8Blocks::kTensor;
  const int64_t along = of_tensor ? std::max<int64_t>(rows + columns, 1) : 128;
  const int64_t across = kind.blocks == Fp8Blocks::kLines ? 1 : along;
  const std::vector<double> want_rows =
      rounded(values, rows, columns, {across, along}, kind.format);
  const std::vector<double> want_columns =
      transpose(rounded(values, rows, columns, {along, across}, kind.format), rows, columns);
  std::vector<std::vector<uint8_t>> codes;
  std::vector<std::vector<float>> scales;
  for (const Exec& exec : devices_with({&kernels::quantize_fp8})) {
    for (const int threads : {1, 3}) {
      CAPTURE(to_string(exec.device), rows, columns, int(kind.blocks), int(kind.format), threads);
      const Exec own = with_threads(exec, threads);
      const DeviceArray<bf16> x(exec, values);
      const View view = x.view({rows, columns});
      const OperandArrays by_rows(exec, rows, columns, kind);
      const OperandArrays by_columns(exec, columns, rows, kind);
      kernels::quantize_fp8(
          own, {.x = view, .rows = by_rows.operand(), .columns = by_columns.operand()});
      REQUIRE(by_rows.numbers() == want_rows);
      REQUIRE(by_columns.numbers() == want_columns);
      const OperandArrays rows_alone(exec, rows, columns, kind);
      const OperandArrays columns_alone(exec, columns, rows, kind);
      kernels::quantize_fp8(own, {.x = view, .rows = rows_alone.operand()});
      kernels::quantize_fp8(own, {.x = view, .columns = columns_alone.operand()});
      for (const OperandArrays* made : {&by_rows, &by_columns, &rows_alone, &columns_alone}) {
        CHECK(made->margins_intact());
        CHECK(made->is_padded());
        codes.push_back(made->codes());
        scales.push_back(made->scales());
      }
    }
  }
  for (size_t i = 0; i < codes.size(); ++i) {
    CHECK(codes[i] == codes[i % 2]);
    CHECK(scales[i] == scales[i % 2]);
  }
}

TEST_CASE("quantize_fp8 makes NaN of all of a block that is not finite", "[kernels]") {
  for (const Exec& exec : devices_with({&kernels::quantize_fp8})) {
    std::vector<bf16> values(384, bf16(1.0f));
    values[5] = bf16(std::numeric_limits<float>::infinity());
    values[300] = bf16(std::numeric_limits<float>::quiet_NaN());
    const DeviceArray<bf16> x(exec, values);
    const OperandArrays rows(exec, 3, 128, kLines);
    kernels::quantize_fp8(exec, {.x = x.view({3, 128}), .rows = rows.operand()});
    const std::vector<double> found = rows.numbers();
    for (size_t i = 0; i < found.size(); ++i) {
      REQUIRE((i / 128 == 1 ? found[i] == 1.0 : std::isnan(found[i])));
    }
  }
}

namespace {

// Returns the additional error of tensor cores, relative to the magnitudes that they add. Each
// block of 128 terms takes four instructions. Each instruction truncates 32 products and the
// accumulator at 2^-13 of the largest of them (DeepSeek-V3, arXiv:2412.19437, section 3.3.2). On
// the emulator, which sums in f32, there is none.
double hardware_error(const Exec& exec) {
  return exec.device.type == DeviceType::kCuda ? 4 * 33 * 0x1p-13 : 0;
}

struct ProductCase {
  int64_t m, n, k;
  Kind b_kind = kLines, a_kind = kLines;
  bool bias = false, residual = false, accumulate = false;
  int64_t pad = 0;  // elements between two rows of c
};

// Compares a GEMM of random operands with f64 on every device, and the bits of two identical calls.
template <typename TOut>
void check_product(const ProductCase& g) {
  const std::vector<bf16> a_values = uneven(g.m * g.k, 1), b_values = uneven(g.n * g.k, 2);
  const std::vector<bf16> bias_values = randn<bf16>(g.n, 3);
  const std::vector<TOut> before = randn<TOut>(g.m * g.n, 4);
  const Placement c_at{g.m, g.n, false, g.pad, 1};
  for (const Exec& exec : devices_of_products()) {
    CAPTURE(to_string(exec.device), g.m, g.n, g.k, int(g.b_kind.blocks), int(g.a_kind.format),
            g.bias, g.residual, g.accumulate, g.pad);
    const DeviceArray<bf16> x(exec, a_values), w(exec, b_values), bias(exec, bias_values);
    const OperandArrays a(exec, g.m, g.k, g.a_kind), b(exec, g.n, g.k, g.b_kind);
    kernels::quantize_fp8(exec, {.x = x.view({g.m, g.k}), .rows = a.operand()});
    kernels::quantize_fp8(exec, {.x = w.view({g.n, g.k}), .rows = b.operand()});
    const DeviceArray<TOut> residual(exec, place(c_at, before)), c(exec, place(c_at, before));
    kernels::Fp8GemmArgs args{.a = a.operand(),
                              .b = b.operand(),
                              .c = c.view(c_at.shape(), c_at.strides()),
                              .accumulate = g.accumulate};
    if (g.bias) args.bias = bias.view();
    if (g.residual) args.residual = residual.view(c_at.shape(), c_at.strides());
    kernels::fp8_gemm(exec, args);

    const RefProduct ref =
        ref_product(a.numbers(), transpose(b.numbers(), g.n, g.k), g.m, g.n, g.k);
    const auto more = [&](size_t i, auto&& of) {
      double sum = g.bias ? of(to_f64(bias_values[i % size_t(g.n)])) : 0;
      if (g.residual || g.accumulate) sum += of(to_f64(before[i]));
      return sum;
    };
    const auto plain = [](double term) { return term; };
    const auto magnitude = [](double term) { return std::abs(term); };
    const std::vector<TOut> memory = c.download(), found = gather(c_at, memory);
    // Each sum of 128 terms is scaled exactly and added to an outer sum.
    CHECK(worst_ratio(
              found, [&](size_t i) { return ref.value[i] + more(i, plain); },
              [&](size_t i) {
                return sum_error(g.k, 3, ref.magnitude[i] + more(i, magnitude)) +
                       hardware_error(exec) * ref.magnitude[i];
              }) <= 1);
    CHECK(same_bits(place(c_at, found), memory));
    CHECK(c.margins_intact());
    if (g.accumulate) continue;
    kernels::fp8_gemm(exec, args);
    CHECK(same_bits(c.download(), memory));
  }
}

}  // namespace

// Numbers of pipeline stages: one, a ragged one, even and odd numbers, and more than the ring has
// slots. Numbers of tiles: one, and several that are ragged in both directions.
TEST_CASE("fp8_gemm agrees with f64 for all numbers of stages and tiles", "[gemm]") {
  const auto [a_kind, b_kind] =
      GENERATE(std::pair{kLines, kLines}, std::pair{kLines, kSquares}, std::pair{kTensor, kTensor},
               std::pair{kGradient, kTensor});
  for (const auto& [m, n, k] : {std::tuple<int64_t, int64_t, int64_t>{1, 1, 1},
                                {128, 128, 128},
                                {130, 264, 256},
                                {300, 140, 392},
                                {72, 136, 900}}) {
    check_product<bf16>({.m = m, .n = n, .k = k, .b_kind = b_kind, .a_kind = a_kind});
  }
}

TEST_CASE("fp8_gemm adds bias and residual, or to c, in bf16 and f32, aligned or not", "[gemm]") {
  const int64_t pad = GENERATE(0, 3);
  check_product<bf16>({.m = 140, .n = 200, .k = 272, .b_kind = kSquares, .bias = true, .pad = pad});
  check_product<bf16>({.m = 140, .n = 200, .k = 272, .bias = true, .residual = true, .pad = pad});
  check_product<bf16>({.m = 140, .n = 200, .k = 272, .accumulate = true, .pad = pad});
  check_product<float>({.m = 140, .n = 200, .k = 272, .accumulate = true, .pad = pad});
  check_product<float>({.m = 140, .n = 200, .k = 272, .bias = true, .pad = pad});
}

// A GEMM with few tiles and a long k is split along k; the last part is shorter.
TEST_CASE("fp8_gemm adds the products of parts of k", "[gemm]") {
  constexpr int64_t kLong = 3 * 8 * 128 + 200;
  check_product<float>({.m = 72, .n = 136, .k = kLong, .accumulate = true});
  check_product<bf16>({.m = 136, .n = 20, .k = kLong, .b_kind = kSquares, .bias = true, .pad = 3});
}

TEST_CASE("fp8_gemm without rows, columns or k writes what is left", "[gemm]") {
  check_product<bf16>({.m = 0, .n = 8, .k = 128});
  check_product<bf16>({.m = 8, .n = 0, .k = 128});
  check_product<bf16>({.m = 8, .n = 16, .k = 0, .bias = true});
  check_product<float>({.m = 8, .n = 16, .k = 0, .accumulate = true});
}

// Tensor cores sum only 128 terms at a time, so a huge value affects no block but its own.
TEST_CASE("fp8_gemm keeps small blocks beside a large one", "[gemm]") {
  constexpr int64_t kK = 256;
  std::vector<bf16> values(kK, bf16(0.0f));
  values[0] = bf16(448.0f * 64);
  values[kK / 2] = bf16(0.25f);
  const std::vector<bf16> ones(kK, bf16(1.0f));
  for (const Exec& exec : devices_of_products()) {
    const DeviceArray<bf16> x(exec, values), w(exec, ones);
    const OperandArrays a(exec, 1, kK, kLines), b(exec, 1, kK, kLines);
    kernels::quantize_fp8(exec, {.x = x.view({1, kK}), .rows = a.operand()});
    kernels::quantize_fp8(exec, {.x = w.view({1, kK}), .rows = b.operand()});
    const DeviceArray<float> c(exec, 1);
    kernels::fp8_gemm(exec, {.a = a.operand(), .b = b.operand(), .c = c.view({1, 1})});
    CHECK(c.download()[0] == 448.0f * 64 + 0.25f);
  }
}

TEST_CASE("fp8_gemm says what is wrong with its operands, and where it has no kernel", "[gemm]") {
  const Exec& exec = devices().front();
  const OperandArrays a(exec, 4, 128, kLines), b(exec, 8, 128, kLines), other(exec, 8, 130, kLines);
  const DeviceArray<bf16> c(exec, 32);
  const auto message = [&](const Exec& on, const Fp8Operand& left, const Fp8Operand& right) {
    return message_of<Error>([&] {
      kernels::fp8_gemm(on, {.a = left, .b = right, .c = c.view({4, 8})});
    });
  };
  CHECK(contains(message(exec, a.operand(), other.operand()), "b is uint8[8,130]"));
  Fp8Operand narrow = a.operand();
  narrow.codes.strides = {120, 1};
  CHECK(contains(message(exec, narrow, b.operand()), "120 elements apart"));
  Fp8Operand square = a.operand();
  square.blocks = Fp8Blocks::kSquares;
  CHECK(contains(message(exec, square, b.operand()), "a has square blocks"));
  Fp8Operand gradient = a.operand();
  gradient.format = Fp8Format::kE5M2;
  CHECK(contains(message(exec, gradient, b.operand()), "a is E5M2"));
  CHECK(contains(message(exec, gradient, gradient), "b is E5M2, expected E4M3"));
  for (Exec gpu : devices_with({&kernels::fp8_gemm})) {
    if (gpu.device.type != DeviceType::kEmu) continue;
    for (const auto& [arch, why] :
         {std::pair{75, "needs compute capability 8.9 or later, found 7.5"},
          {86, "needs compute capability 8.9 or later, found 8.6"},
          {89, "scales of blocks need compute capability 9.0 (H100), found 8.9"},
          {120, "scales of blocks need compute capability 9.0 (H100), found 12.0"}}) {
      gpu.device.arch = arch;
      CHECK(contains(message(gpu, a.operand(), b.operand()), why));
      CHECK(contains(
          message_of<UnavailableError>([&] { kernels::check_fp8_gemm(gpu, Fp8Blocks::kLines); }),
          why));
    }
    gpu.device.arch = 90;
    CHECK_NOTHROW(kernels::check_fp8_gemm(gpu, Fp8Blocks::kLines));
  }
}

TEST_CASE("scales of tensors have GEMMs on GPUs of 8.9 and later, by cuBLASLt but on 9.0",
          "[gemm]") {
  const auto why = [](DeviceType type, int arch, Fp8Blocks blocks) {
    return kernels::why_no_fp8({.type = type, .arch = arch}, blocks);
  };
  for (const int arch : {75, 80, 86, 89, 90, 100, 103, 120, 121}) {
    CAPTURE(arch);
    CHECK(why(DeviceType::kCuda, arch, Fp8Blocks::kTensor).empty() == (arch >= 89));
    CHECK(why(DeviceType::kCuda, arch, Fp8Blocks::kSquares).empty() == (arch == 90));
    CHECK(why(DeviceType::kEmu, arch, Fp8Blocks::kTensor).empty() == (arch == 90));
    CHECK(kernels::fp8_lines_unit({.type = DeviceType::kCuda, .arch = arch}) ==
          (arch == 90 ? 1 : 16));
  }
  CHECK(contains(why(DeviceType::kEmu, 100, Fp8Blocks::kTensor), "the emulator cannot run"));
  CHECK(why(DeviceType::kCpu, 0, Fp8Blocks::kLines).empty());
  CHECK(kernels::fp8_lines_unit({}) == 1);
}

}  // namespace shale::test
