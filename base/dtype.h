#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace shale {

// Element type of a tensor.
enum class DType : uint8_t { kF32, kBF16, kF16, kF64, kI32, kI64, kU8, kU16, kU32 };

// bfloat16: the upper half of an f32. Conversion from f32 rounds to nearest, ties to even.
struct bf16 {
  uint16_t bits = 0;

  constexpr bf16() = default;
  constexpr explicit bf16(float value) {
    const uint32_t u = std::bit_cast<uint32_t>(value);
    const bool is_nan = (u & 0x7fffffffu) > 0x7f800000u;
    // A NaN keeps its sign and becomes a quiet NaN: rounding could turn it into an infinity.
    bits = is_nan ? static_cast<uint16_t>((u >> 16) | 0x40u)
                  : static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
  }
  constexpr explicit operator float() const {
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  }
};

// IEEE binary16, for storage only: arithmetic is done in f32.
struct f16 {
  uint16_t bits = 0;

  constexpr f16() = default;
  explicit f16(float value);        // rounds to nearest, ties to even; overflows to infinity
  explicit operator float() const;  // without rounding
};

static_assert(sizeof(bf16) == 2 && sizeof(f16) == 2);

// Converts to f32 without rounding, like the overloads for bf16 and f16.
constexpr float to_f32(float x) {
  return x;
}
constexpr float to_f32(bf16 x) {
  return static_cast<float>(x);
}
inline float to_f32(f16 x) {
  return static_cast<float>(x);
}

template <typename T>
struct DTypeOf;  // DTypeOf<T>::value: the DType of a type
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::kF32;
};
template <>
struct DTypeOf<bf16> {
  static constexpr DType value = DType::kBF16;
};
template <>
struct DTypeOf<f16> {
  static constexpr DType value = DType::kF16;
};
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::kF64;
};
template <>
struct DTypeOf<int32_t> {
  static constexpr DType value = DType::kI32;
};
template <>
struct DTypeOf<int64_t> {
  static constexpr DType value = DType::kI64;
};
template <>
struct DTypeOf<uint8_t> {
  static constexpr DType value = DType::kU8;
};
template <>
struct DTypeOf<uint16_t> {
  static constexpr DType value = DType::kU16;
};
template <>
struct DTypeOf<uint32_t> {
  static constexpr DType value = DType::kU32;
};
template <typename T>
inline constexpr DType dtype_of = DTypeOf<T>::value;

// Size of one element in bytes.
constexpr int64_t dtype_size(DType dtype) {
  switch (dtype) {
    case DType::kF64:
    case DType::kI64: return 8;
    case DType::kF32:
    case DType::kI32:
    case DType::kU32: return 4;
    case DType::kBF16:
    case DType::kF16:
    case DType::kU16: return 2;
    case DType::kU8: return 1;
  }
  return 0;
}

// Name in flags and messages: "fp32", "bf16", ...
std::string_view dtype_name(DType dtype);

constexpr bool is_float(DType dtype) {  // true for floating-point element types
  return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16 ||
         dtype == DType::kF64;
}

}  // namespace shale
