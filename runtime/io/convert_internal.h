#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "shale/base/dtype.h"

namespace shale::io_internal {

// Memory with elements of type f32, bf16 or f16. A source may be unaligned.
struct Source {
  const std::byte* data = nullptr;
  DType dtype = DType::kF32;
};
struct Target {
  void* data = nullptr;
  DType dtype = DType::kF32;
};

// Copies target[k] = source[first + k] for k in [0, count), converting through f32. Exact unless
// the target type is narrower; then rounds to nearest even. Throws DTypeError unless both types are
// f32, bf16 or f16.
void convert(const Source& source, int64_t first, const Target& target, int64_t count);

// Copies target[r, c] = source[c, first + r] for r in [0, rows), c in [0, cols). The source has
// `source_cols` columns; the target is dense.
struct TransposeSize {
  int64_t source_cols = 0;
  int64_t first = 0;
  int64_t rows = 0;
  int64_t cols = 0;
};
void convert_transposed(const Source& source, const Target& target, const TransposeSize& size);

// A dimension of a copy: its size, and the strides of source and target in elements.
struct CopyDim {
  int64_t size = 0;
  int64_t source = 0;
  int64_t target = 0;
};
// Copies all elements of a box with these dimensions, in any order.
void convert_strided(const Source& source, const Target& target, std::vector<CopyDim> dims);

}  // namespace shale::io_internal
