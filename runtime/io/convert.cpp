#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include "shale/base/error.h"
#include "shale/runtime/io/convert_internal.h"
#include "shale/runtime/io/in_parallel.h"

namespace shale::io_internal {
namespace {

// Number of elements from which a transpose uses several threads.
constexpr int64_t kParallelElements = int64_t{1} << 18;
constexpr size_t kWorkers = 4;

template <typename T>
float load(const std::byte* data, int64_t i) {
  T value;
  std::memcpy(&value, data + i * static_cast<int64_t>(sizeof(T)), sizeof value);
  return to_f32(value);
}

// Calls fn.operator()<T>(), where T is the C++ type of `dtype`.
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
  if (source.dtype == target.dtype) {
    const int64_t size = dtype_size(source.dtype);
    std::memcpy(target.data, source.data + first * size, static_cast<size_t>(count * size));
    return;
  }
  with_types(source.dtype, target.dtype, [&]<typename From, typename To>() {
    To* out = static_cast<To*>(target.data);
    for (int64_t k = 0; k < count; ++k) out[k] = To(load<From>(source.data, first + k));
  });
}

namespace {

// Merges neighbouring dimensions that are contiguous in both source and target. Sorts dimensions so
// that the innermost one of the target comes last.
std::vector<CopyDim> simplified(std::vector<CopyDim> dims) {
  std::erase_if(dims, [](const CopyDim& dim) { return dim.size == 1; });
  std::sort(dims.begin(), dims.end(),
            [](const CopyDim& a, const CopyDim& b) { return a.target > b.target; });
  std::vector<CopyDim> merged;
  for (const CopyDim& dim : dims) {
    CopyDim* const outer = merged.empty() ? nullptr : &merged.back();
    if (outer != nullptr && outer->source == dim.size * dim.source &&
        outer->target == dim.size * dim.target) {
      *outer = {outer->size * dim.size, dim.source, dim.target};
    } else {
      merged.push_back(dim);
    }
  }
  return merged;
}

// Calls fn(source offset, target offset) for every index of a box with these dimensions.
template <typename Fn>
void for_each_index(const std::vector<CopyDim>& dims, const Fn& fn) {
  std::vector<int64_t> index(dims.size(), 0);
  int64_t source = 0, target = 0;
  while (true) {
    fn(source, target);
    size_t d = dims.size();
    for (; d > 0; --d) {
      const CopyDim& dim = dims[d - 1];
      source += dim.source, target += dim.target;
      if (++index[d - 1] < dim.size) break;
      source -= dim.size * dim.source, target -= dim.size * dim.target;
      index[d - 1] = 0;
    }
    if (d == 0) return;
  }
}

// Converts a block of row.size x col.size numbers.
template <typename From, typename To>
void copy_block(const std::byte* in, To* out, CopyDim row, CopyDim col) {
  const auto copy = [&](auto source_row, auto target_col) {
    for (int64_t r = 0; r < row.size; ++r) {
      for (int64_t c = 0; c < col.size; ++c) {
        out[r * row.target + c * target_col] = To(load<From>(in, r * source_row + c * col.source));
      }
    }
  };
  constexpr std::integral_constant<int64_t, 1> kOne;
  if (row.source == 1 && col.target == 1) {
    // this case, the transpose of a matrix, is twice as fast with constant strides
    copy(kOne, kOne);
  } else {
    copy(row.source, col.target);
  }
}

}  // namespace

void convert_strided(const Source& source, const Target& target, std::vector<CopyDim> dims) {
  for (const CopyDim& dim : dims) {
    if (dim.size == 0) return;
  }
  dims = simplified(std::move(dims));
  CopyDim inner{1, 1, 1};
  if (!dims.empty()) {
    inner = dims.back();
    dims.pop_back();
  }
  const int64_t size = dtype_size(target.dtype);
  const auto target_at = [&](int64_t offset) {
    return Target{static_cast<std::byte*>(target.data) + offset * size, target.dtype};
  };
  if (inner.source == 1 && inner.target == 1) {
    return for_each_index(
        dims, [&](int64_t from, int64_t to) { convert(source, from, target_at(to), inner.size); });
  }
  constexpr int64_t kBlock = 16;  // block edge in elements: a cache line of f32
  CopyDim outer{1, 0, 0};
  const auto dense =
      std::find_if(dims.begin(), dims.end(), [](const CopyDim& dim) { return dim.source == 1; });
  if (dense != dims.end()) {
    outer = *dense;
    dims.erase(dense);
  }
  with_types(source.dtype, target.dtype, [&]<typename From, typename To>() {
    To* const out = static_cast<To*>(target.data);
    // A thread converts kBlock rows of the target at a time.
    const auto strips = static_cast<size_t>((outer.size + kBlock - 1) / kBlock);
    const size_t workers = outer.size * inner.size < kParallelElements ? 1 : kWorkers;
    for_each_index(dims, [&](int64_t from, int64_t to) {
      in_parallel(strips, workers, [&](size_t strip, size_t) {
        CopyDim row = outer, col = inner;
        const int64_t first = static_cast<int64_t>(strip) * kBlock;
        row.size = std::min(kBlock, outer.size - first);
        for (int64_t c0 = 0; c0 < inner.size; c0 += kBlock) {
          col.size = std::min(kBlock, inner.size - c0);
          const int64_t at = from + first * row.source + c0 * col.source;
          copy_block<From>(source.data + at * static_cast<int64_t>(sizeof(From)),
                           out + to + first * row.target + c0 * col.target, row, col);
        }
      });
    });
  });
}

void convert_transposed(const Source& source, const Target& target, const TransposeSize& size) {
  const Source from{source.data + size.first * dtype_size(source.dtype), source.dtype};
  convert_strided(from, target, {{size.rows, 1, size.cols}, {size.cols, size.source_cols, 1}});
}

}  // namespace shale::io_internal
