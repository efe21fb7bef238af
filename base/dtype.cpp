#include "shale/base/dtype.h"

#include <cmath>

namespace shale {

std::string_view dtype_name(DType dtype) {
  switch (dtype) {
    case DType::kF32: return "fp32";
    case DType::kBF16: return "bf16";
    case DType::kF16: return "fp16";
    case DType::kF64: return "fp64";
    case DType::kI32: return "int32";
    case DType::kI64: return "int64";
    case DType::kU8: return "uint8";
    case DType::kU16: return "uint16";
    case DType::kU32: return "uint32";
  }
  return "unknown";
}

f16::f16(float value) {
  const uint32_t u = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (u >> 16) & 0x8000u;
  const uint32_t magnitude = u & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {
    bits = static_cast<uint16_t>(sign | 0x7e00u);
  } else if (magnitude >= 0x477ff000u) {  // rounds to 65536 or more
    bits = static_cast<uint16_t>(sign | 0x7c00u);
  } else if (magnitude < 0x38800000u) {  // subnormal result, a multiple of 2^-24
    const float scaled = std::bit_cast<float>(magnitude) * 0x1p24f;
    bits = static_cast<uint16_t>(sign | static_cast<uint32_t>(std::nearbyintf(scaled)));
  } else {
    const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
    bits = static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
  }
}

f16::operator float() const {
  const uint32_t sign = (bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1fu;
  const uint32_t fraction = bits & 0x3ffu;
  if (exponent == 0) {
    const float value = static_cast<float>(fraction) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(value) | sign);
  }
  const uint32_t biased = exponent == 31 ? 0xffu : exponent + 112u;
  return std::bit_cast<float>(sign | (biased << 23) | (fraction << 13));
}

}  // namespace shale
