#include <algorithm>
#include <cstring>

#include "shale/base/error.h"
#include "shale/runtime/io/convert_internal.h"

namespace shale::io_internal {
namespace {

template <typename T>
float load(const std::byte* data, int64_t i) {
  T value;
  std::memcpy(&value, data + i * static_cast<int64_t>(sizeof(T)), sizeof value);
  return to_f32(value);
}

// Calls fn.operator()<T>() with the C++ type of `dtype`.
template <typename Fn>
void with_type(DType dtype, const Fn& fn) {
  switch (dtype) {
    case DType::kF32: return fn.template operator()<float>();
    case DType::kBF16: return fn.template operator()<bf16>();
    case DType::kF16: return fn.template operator()<f16>();
    default: throw DTypeError(cat("convert: ", dtype_name(dtype), ", expected fp32, bf16 or fp16"));
  }
}

template <typename Fn>
void with_types(DType source, DType target, const Fn& fn) {
  with_type(source, [&]<typename From>() {
    with_type(target, [&]<typename To>() { fn.template operator()<From, To>(); });
  });
}

}  // namespace

void convert(const Source& source, int64_t first, const Target& target, int64_t count) {
  with_types(source.dtype, target.dtype, [&]<typename From, typename To>() {
    To* out = static_cast<To*>(target.data);
    for (int64_t k = 0; k < count; ++k) out[k] = To(load<From>(source.data, first + k));
  });
}

void convert_transposed(const Source& source, const Target& target, const TransposeSize& size) {
  // Edge of a block whose source and target lines fit into the L1 cache together.
  constexpr int64_t kBlock = 32;
  with_types(source.dtype, target.dtype, [&]<typename From, typename To>() {
    To* out = static_cast<To*>(target.data);
    for (int64_t r0 = 0; r0 < size.rows; r0 += kBlock) {
      const int64_t r1 = std::min(r0 + kBlock, size.rows);
      for (int64_t c0 = 0; c0 < size.cols; c0 += kBlock) {
        const int64_t c1 = std::min(c0 + kBlock, size.cols);
        for (int64_t r = r0; r < r1; ++r) {
          for (int64_t c = c0; c < c1; ++c) {
            const int64_t from = c * size.source_cols + size.first + r;
            out[r * size.cols + c] = To(load<From>(source.data, from));
          }
        }
      }
    }
  });
}

}  // namespace shale::io_internal
