// Tests quantization of weight shards to fp8: compares codes with quantize_fp8() of the whole
// weight.
#include "shale/kernels/fp8_shard.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "shale/base/error.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/kernels.h"

namespace shale::test {
namespace {

using kernels::e4m3;
using kernels::Fp8Blocks;

struct Matrix {
  int64_t rows = 0, columns = 0;
  int64_t numel() const { return rows * columns; }
  Shape shape() const { return {rows, columns}; }
  Matrix transposed() const { return {columns, rows}; }
  Shape blocks(Fp8Blocks of) const { return kernels::fp8_weight_blocks(of, shape()); }
};

// Makes weights in which adjacent blocks have different magnitudes. Some weights are halfway
// between two bf16 numbers.
std::vector<float> uneven_weights(int64_t count) {
  std::vector<float> values = randn<float>(count, 11);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] *= i / 128 % 3 == 1 ? 1e-4f : 3.0f;
    if (i % 5 == 0) {
      values[i] = std::bit_cast<float>((std::bit_cast<uint32_t>(values[i]) & ~0xffffu) | 0x8000u);
    }
  }
  return values;
}

// Result of quantize_fp8() for x in bf16, on the CPU.
struct Quantized {
  std::vector<uint8_t> codes;
  std::vector<double> numbers;
};
Quantized quantized(const std::vector<bf16>& x, const Matrix& m, Fp8Blocks blocks) {
  const Exec exec = devices().front();
  const DeviceArray<bf16> input(exec, x);
  const int64_t stride = kernels::fp8_codes_stride(m.columns);
  const int64_t scales_stride = kernels::fp8_scales_stride(m.rows);
  const int64_t scale_rows = kernels::fp8_scale_rows(m.columns);
  const DeviceArray<uint8_t> codes(exec, m.rows * stride);
  const DeviceArray<float> scales(exec, scale_rows * scales_stride);
  kernels::quantize_fp8(exec,
                        {.x = input.view(m.shape()),
                         .rows = {.codes = codes.view(m.shape(), {stride, 1}),
                                  .scales = scales.view({scale_rows, m.rows}, {scales_stride, 1}),
                                  .blocks = blocks}});
  const std::vector<uint8_t> made = codes.download();
  const std::vector<float> scale = scales.download();
  Quantized result;
  for (int64_t i = 0; i < m.rows; ++i) {
    for (int64_t j = 0; j < m.columns; ++j) {
      result.codes.push_back(made[size_t(i * stride + j)]);
      result.numbers.push_back(double(kernels::decoded(e4m3{result.codes.back()})) *
                               scale[size_t(j / 128 * scales_stride + i)]);
    }
  }
  return result;
}

// Memory of an fp8 operand.
class OperandArray {
 public:
  OperandArray(const Exec& exec, const Matrix& m, Fp8Blocks blocks)
      : m_(m),
        blocks_(blocks),
        codes_(exec, m.rows * kernels::fp8_codes_stride(m.columns)),
        scales_(exec, kernels::fp8_scale_rows(m.columns) * kernels::fp8_scales_stride(m.rows)) {}

  kernels::Fp8Operand operand() const {
    return {.codes = codes_.view(m_.shape(), {kernels::fp8_codes_stride(m_.columns), 1}),
            .scales = scales_.view({kernels::fp8_scale_rows(m_.columns), m_.rows},
                                   {kernels::fp8_scales_stride(m_.rows), 1}),
            .blocks = blocks_};
  }
  std::vector<uint8_t> lines() const {
    return parts_of(codes_.download(), m_.rows, m_.columns, kernels::fp8_codes_stride(m_.columns));
  }
  std::vector<uint8_t> lines_and_padding() const { return codes_.download(); }
  std::vector<uint32_t> scale_bits() const {
    std::vector<uint32_t> bits;
    for (const float scale : scales_.download()) bits.push_back(std::bit_cast<uint32_t>(scale));
    return parts_of(bits, kernels::fp8_scale_rows(m_.columns), m_.rows,
                    kernels::fp8_scales_stride(m_.rows));
  }
  bool margins_intact() const { return codes_.margins_intact() && scales_.margins_intact(); }

 private:
  // Returns the content of the lines, without the padding between them.
  template <typename T>
  static std::vector<T> parts_of(const std::vector<T>& all, int64_t lines, int64_t length,
                                 int64_t stride) {
    std::vector<T> parts;
    for (int64_t line = 0; line < lines; ++line) {
      parts.insert(parts.end(), all.begin() + line * stride, all.begin() + line * stride + length);
    }
    return parts;
  }

  Matrix m_;
  Fp8Blocks blocks_;
  DeviceArray<uint8_t> codes_;
  DeviceArray<float> scales_;
};

std::vector<bf16> in_bf16(const std::vector<float>& x) {
  std::vector<bf16> y;
  for (const float value : x) y.emplace_back(value);
  return y;
}

// Results of ranks that have `of_rank` elements each. Together the ranks find the maxima, encode
// their shards, and decode all codes.
struct Shared {
  std::vector<uint8_t> codes;
  std::vector<bf16> numbers;
  bool margins_intact = false;
};
Shared shared_by_ranks(const Exec& exec, const std::vector<float>& x, const Matrix& m,
                       Fp8Blocks blocks, int64_t of_rank) {
  const DeviceArray<float> input(exec, x);
  const Shape of_blocks = m.blocks(blocks);
  const DeviceArray<int32_t> largest(exec, std::vector<int32_t>(size_t(of_blocks.numel())));
  const DeviceArray<uint8_t> codes(exec, m.numel());
  const DeviceArray<bf16> y(exec, m.numel());
  const View all = input.view(), maxima = largest.view(of_blocks);
  for (const bool encodes : {false, true}) {
    for (int64_t first = 0; first < m.numel(); first += of_rank) {
      const int64_t count = std::min(of_rank, m.numel() - first);
      const View part = all.flat(first, count);
      if (!encodes) {
        kernels::fp8_largest(exec,
                             {.x = part, .first = first, .columns = m.columns, .largest = maxima});
        continue;
      }
      kernels::fp8_encode(exec, {.x = part,
                                 .first = first,
                                 .columns = m.columns,
                                 .largest = maxima,
                                 .codes = codes.view().flat(first, count)});
    }
  }
  kernels::fp8_decode(exec,
                      {.codes = codes.view(m.shape()), .largest = maxima, .y = y.view(m.shape())});
  return {codes.download(), y.download(),
          largest.margins_intact() && codes.margins_intact() && y.margins_intact()};
}

}  // namespace

TEST_CASE("ranges of a weight have the codes of quantize_fp8 of the whole, however it is cut",
          "[kernels]") {
  const Fp8Blocks blocks = GENERATE(Fp8Blocks::kSquares, Fp8Blocks::kTensor);
  const Matrix m = GENERATE(Matrix{1, 1}, Matrix{3, 200}, Matrix{130, 129}, Matrix{96, 72},
                            Matrix{200, 256}, Matrix{129, 384});
  const int64_t of_rank = GENERATE(1024, 2048, 7, 1 << 20);
  const std::vector<float> x = uneven_weights(m.numel());
  const Quantized want = quantized(in_bf16(x), m, blocks);
  for (const Exec& exec : devices_with({&kernels::fp8_encode})) {
    if (of_rank == 7 && (exec.device.type == DeviceType::kEmu || m.numel() > 20000)) continue;
    for (const int threads : {1, 3}) {
      CAPTURE(to_string(exec.device), m.rows, m.columns, of_rank, int(blocks), threads);
      const Shared found = shared_by_ranks(with_threads(exec, threads), x, m, blocks, of_rank);
      REQUIRE(found.codes == want.codes);
      for (size_t i = 0; i < want.numbers.size(); ++i) {
        REQUIRE(to_f64(found.numbers[i]) == want.numbers[i]);
      }
      CHECK(found.margins_intact);
    }
  }
}

TEST_CASE("operands out of a weight's codes are those of quantize_fp8", "[kernels]") {
  const Fp8Blocks blocks = GENERATE(Fp8Blocks::kSquares, Fp8Blocks::kTensor);
  const Matrix m = GENERATE(Matrix{1, 1}, Matrix{3, 208}, Matrix{130, 129}, Matrix{96, 72},
                            Matrix{256, 128}, Matrix{129, 384});
  std::vector<float> x = uneven_weights(m.numel());
  if (m.columns == 384) x[200] = std::numeric_limits<float>::infinity();
  for (const Exec& exec : devices_with({&kernels::fp8_operands})) {
    CAPTURE(to_string(exec.device), m.rows, m.columns, int(blocks));
    const DeviceArray<bf16> values(exec, in_bf16(x));
    const OperandArray want_rows(exec, m, blocks), want_columns(exec, m.transposed(), blocks);
    kernels::quantize_fp8(exec, {.x = values.view(m.shape()),
                                 .rows = want_rows.operand(),
                                 .columns = want_columns.operand()});
    const DeviceArray<float> input(exec, x);
    const Shape of_blocks = m.blocks(blocks);
    const DeviceArray<int32_t> largest(exec, std::vector<int32_t>(size_t(of_blocks.numel())));
    const DeviceArray<uint8_t> codes(exec, m.numel());
    const View maxima = largest.view(of_blocks);
    kernels::fp8_largest(exec, {.x = input.view(), .columns = m.columns, .largest = maxima});
    kernels::fp8_encode(
        exec, {.x = input.view(), .columns = m.columns, .largest = maxima, .codes = codes.view()});
    const std::vector<uint8_t> before = codes.download();
    // Bits of `asked`: 0 requests rows, 1 columns, 2 that the rows overwrite the codes' memory.
    for (const int asked : {1, 2, 3, 5, 7}) {
      const bool in_place = (asked & 4) != 0;
      if (in_place && kernels::fp8_codes_stride(m.columns) != m.columns) continue;
      CAPTURE(asked);
      const OperandArray rows(exec, m, blocks), columns(exec, m.transposed(), blocks);
      kernels::Fp8OperandsArgs args{.codes = codes.view(m.shape()), .largest = maxima};
      if ((asked & 1) != 0) args.rows = rows.operand();
      if (in_place) args.rows.codes = codes.view(m.shape());
      if ((asked & 2) != 0) args.columns = columns.operand();
      kernels::fp8_operands(exec, args);
      if ((asked & 1) != 0) {
        CHECK(rows.scale_bits() == want_rows.scale_bits());
        if (!in_place) CHECK(rows.lines() == want_rows.lines());
      }
      if ((asked & 2) != 0) {
        CHECK(columns.scale_bits() == want_columns.scale_bits());
        CHECK(columns.lines() == want_columns.lines());
      }
      const bool is_finite = m.columns != 384;  // with 384 columns, the padding may be NaN
      if ((asked & 1) != 0 && !in_place && is_finite) {
        CHECK(rows.lines_and_padding() == want_rows.lines_and_padding());
      }
      if ((asked & 2) != 0 && is_finite) {
        CHECK(columns.lines_and_padding() == want_columns.lines_and_padding());
      }
      CHECK(codes.download() == before);
      CHECK((rows.margins_intact() && columns.margins_intact() && codes.margins_intact()));
    }
    // Codes are compared without the sign of NaN, which is not preserved.
    CHECK(want_rows.lines() == before);
  }
}

TEST_CASE("numbers out of codes of fp8 are the same when they are quantized again", "[kernels]") {
  const Fp8Blocks blocks = GENERATE(Fp8Blocks::kSquares, Fp8Blocks::kTensor);
  const Matrix m = {150, 256};
  std::vector<float> x = uneven_weights(m.numel());
  // This block's maximum rounds down to half of the format's maximum, which changes the scale.
  for (int64_t i = 0; i < 128; ++i) x[size_t(i)] = i == 3 ? 225.0f : 0.01f * float(i);
  const Quantized once = quantized(in_bf16(x), m, blocks);
  std::vector<bf16> numbers;
  for (const double value : once.numbers) numbers.emplace_back(float(value));
  const Quantized twice = quantized(numbers, m, blocks);
  CHECK(twice.numbers == once.numbers);
}

TEST_CASE("a block of a weight that is not finite is NaN after it has travelled", "[kernels]") {
  const Matrix m = {2, 256};
  for (const Exec& exec : devices_with({&kernels::fp8_encode})) {
    for (const float bad :
         {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN(),
          -std::numeric_limits<float>::max()}) {  // infinity when rounded to bf16
      std::vector<float> x(size_t(m.numel()), 1.0f);
      x[130] = bad;
      const Shared found = shared_by_ranks(exec, x, m, Fp8Blocks::kSquares, 1024);
      for (size_t i = 0; i < found.numbers.size(); ++i) {
        const double value = to_f64(found.numbers[i]);
        REQUIRE((i % 256 < 128 ? value == 1.0 : std::isnan(value)));
      }
    }
  }
}

TEST_CASE("ranges of fp8 that do not fit their blocks are refused", "[kernels]") {
  const Exec exec = devices().front();
  const DeviceArray<float> x(exec, 1024);
  const DeviceArray<int32_t> largest(exec, std::vector<int32_t>(4));
  const DeviceArray<uint8_t> codes(exec, 1000);
  const DeviceArray<bf16> y(exec, 1024);
  const View four = largest.view({2, 2});
  CHECK_THROWS_AS(
      kernels::fp8_largest(exec, {.x = x.view(), .first = 0, .columns = 100, .largest = four}),
      ShapeError);
  CHECK_THROWS_AS(kernels::fp8_largest(
                      exec, {.x = x.view(), .first = 256 * 200, .columns = 200, .largest = four}),
                  ShapeError);
  CHECK_THROWS_AS(
      kernels::fp8_largest(exec, {.x = x.view(), .first = 0, .columns = 0, .largest = four}),
      ShapeError);
  CHECK_THROWS_AS(
      kernels::fp8_encode(
          exec,
          {.x = x.view(), .first = 0, .columns = 200, .largest = four, .codes = codes.view()}),
      ShapeError);
  CHECK_THROWS_AS(
      kernels::fp8_decode(
          exec, {.codes = codes.view({10, 100}), .largest = four, .y = y.view().flat(0, 1000)}),
      ShapeError);
  const OperandArray rows(exec, {10, 100}, Fp8Blocks::kSquares);
  kernels::Fp8OperandsArgs args{.codes = codes.view({10, 100}), .largest = largest.view({1, 1})};
  CHECK_THROWS_AS(kernels::fp8_operands(exec, args), ShapeError);
  args.rows = rows.operand();
  CHECK_NOTHROW(kernels::fp8_operands(exec, args));
  args.rows.format = kernels::Fp8Format::kE5M2;
  CHECK_THROWS_AS(kernels::fp8_operands(exec, args), DTypeError);
  args.rows = rows.operand();
  args.rows.blocks = Fp8Blocks::kLines;
  CHECK_THROWS_AS(kernels::fp8_operands(exec, args), ShapeError);
}

}  // namespace shale::test
