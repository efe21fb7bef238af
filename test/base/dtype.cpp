#include "shale/base/dtype.h"

#include <cmath>
#include <limits>

#include "shale/test/support/catch.h"

namespace shale {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

uint16_t f16_bits(float value) {
  return f16(value).bits;
}
uint16_t bf16_bits(float value) {
  return bf16(value).bits;
}

template <typename T>
float from_bits(uint16_t bits) {
  T value;
  value.bits = bits;
  return static_cast<float>(value);
}

// binary16 value by definition: (-1)^s 2^(e-15) (1 + m/1024); subnormals are 2^-14 m/1024.
double f16_by_definition(uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const double fraction = (bits & 1023) / 1024.0;
  const double magnitude =
      exponent == 0 ? std::ldexp(fraction, -14) : std::ldexp(1 + fraction, exponent - 15);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

}  // namespace

TEST_CASE("every f16 becomes the float of its definition and comes back", "[dtype]") {
  int wrong = 0;
  for (uint32_t i = 0; i < 65536; ++i) {
    const auto bits = static_cast<uint16_t>(i);
    const float value = from_bits<f16>(bits);
    const bool special = (bits & 0x7c00) == 0x7c00;
    if (special && (bits & 0x3ff) != 0) {
      const uint16_t back = f16_bits(value);
      wrong += !std::isnan(value) || (back & 0x7c00) != 0x7c00 || (back & 0x3ff) == 0;
    } else {
      const float want = special ? ((bits & 0x8000) != 0 ? -kInf : kInf)
                                 : static_cast<float>(f16_by_definition(bits));
      wrong +=
          value != want || std::signbit(value) != std::signbit(want) || f16_bits(value) != bits;
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("f16 rounds to nearest, and to even half way between neighbours", "[dtype]") {
  int wrong = 0;
  for (uint16_t low = 0; low < 0x7bff; ++low) {  // all pairs of neighbouring finite magnitudes
    const auto high = static_cast<uint16_t>(low + 1);
    const float a = from_bits<f16>(low), b = from_bits<f16>(high);
    const float middle = (a + b) / 2;  // exact: f32 has 13 more significand bits than f16
    const uint16_t even = low % 2 == 0 ? low : high;
    wrong += f16_bits(middle) != even;
    wrong += f16_bits(-middle) != (even | 0x8000);
    wrong += f16_bits(std::nextafter(middle, 0.f)) != low;
    wrong += f16_bits(std::nextafter(middle, kInf)) != high;
  }
  CHECK(wrong == 0);
}

TEST_CASE("f16 overflows to infinity and underflows to zero where rounding says so", "[dtype]") {
  CHECK(f16_bits(65504.f) == 0x7bff);
  CHECK(f16_bits(std::nextafter(65520.f, 0.f)) == 0x7bff);
  CHECK(f16_bits(65520.f) == 0x7c00);
  CHECK(f16_bits(-1e30f) == 0xfc00);
  CHECK(f16_bits(kInf) == 0x7c00);
  CHECK(f16_bits(0x1p-25f) == 0x0000);
  CHECK(f16_bits(std::nextafter(0x1p-25f, 1.f)) == 0x0001);
  CHECK(f16_bits(-0x1p-26f) == 0x8000);
  CHECK(f16_bits(std::numeric_limits<float>::denorm_min()) == 0x0000);
  CHECK(std::isnan(static_cast<float>(f16(std::numeric_limits<float>::quiet_NaN()))));
}

TEST_CASE("every bf16 is the upper half of a float and comes back", "[dtype]") {
  int wrong = 0;
  for (uint32_t i = 0; i < 65536; ++i) {
    const auto bits = static_cast<uint16_t>(i);
    const float value = from_bits<bf16>(bits);
    wrong += std::bit_cast<uint32_t>(value) != i << 16;
    // A signalling NaN must become quiet.
    wrong += bf16_bits(value) != (std::isnan(value) ? (bits | 0x40) : bits);
  }
  CHECK(wrong == 0);
}

TEST_CASE("bf16 rounds to nearest, and to even half way between neighbours", "[dtype]") {
  int wrong = 0;
  for (uint32_t low = 0; low < 0x7f80; ++low) {  // all finite magnitudes, the largest with infinity
    const uint32_t middle = (low << 16) | 0x8000u;
    const uint32_t even = low % 2 == 0 ? low : low + 1;
    for (const uint32_t sign : {0u, 0x80000000u}) {
      const auto rounded = [sign](uint32_t u) { return bf16_bits(std::bit_cast<float>(sign | u)); };
      wrong += rounded(middle) != (even | sign >> 16);
      wrong += rounded(middle - 1) != (low | sign >> 16);
      wrong += rounded(middle + 1) != ((low + 1) | sign >> 16);
      wrong += rounded((low << 16) | 1) != (low | sign >> 16);
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("bf16 keeps NaNs whose payload is in the lower half", "[dtype]") {
  const float nan = std::bit_cast<float>(0xff800001u);
  CHECK(bf16_bits(nan) == 0xffc0);
  CHECK(bf16_bits(std::bit_cast<float>(0x7fffffffu)) == 0x7fff);
}

TEST_CASE("dtypes know their size, name and kind", "[dtype]") {
  const auto [dtype, bytes, name, floating] =
      GENERATE(table<DType, int64_t, std::string, bool>({{DType::kF32, 4, "fp32", true},
                                                         {DType::kBF16, 2, "bf16", true},
                                                         {DType::kF16, 2, "fp16", true},
                                                         {DType::kF64, 8, "fp64", true},
                                                         {DType::kI32, 4, "int32", false},
                                                         {DType::kI64, 8, "int64", false},
                                                         {DType::kU8, 1, "uint8", false},
                                                         {DType::kU16, 2, "uint16", false},
                                                         {DType::kU32, 4, "uint32", false}}));
  CHECK(dtype_size(dtype) == bytes);
  CHECK(dtype_name(dtype) == name);
  CHECK(is_float(dtype) == floating);
  CHECK(dtype_of<bf16> == DType::kBF16);
  CHECK(dtype_of<int64_t> == DType::kI64);
}

}  // namespace shale
