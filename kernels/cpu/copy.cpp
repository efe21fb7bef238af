#include <algorithm>
#include <array>
#include <cstring>

#include "shale/kernels/check.h"
#include "shale/kernels/convert.h"
#include "shale/kernels/copy_plan.h"
#include "shale/kernels/cpu/parallel.h"
#include "shale/kernels/cpu/run.h"
#include "shale/kernels/elementwise.h"

// The copy kernel. The two innermost dimensions of the plan (copy_plan.h) form a two-dimensional
// tile. A tile is copied row by row if x and y are contiguous along rows, else in squares that fit
// the cache. Threads divide the tiles and their rows.

namespace shale::kernels {
namespace {

// Copies rows [begin, end) of a tile.
template <typename T>
void copy_rows(const T* x, T* y, const CopyDim& rows, const CopyDim& inner, int64_t begin,
               int64_t end) {
  if (inner.x == 1 && inner.y == 1) {
    for (int64_t r = begin; r < end; ++r) {
      std::memcpy(y + r * rows.y, x + r * rows.x, size_t(inner.size) * sizeof(T));
    }
    return;
  }
  // Copies in small squares, so that both x and y are accessed by whole cache lines. With strides
  // of a power of two, the lines of a column would evict each other; the odd width of the buffer
  // spreads a column over the cache sets.
  constexpr int64_t kSquare = 32;
  T square[kSquare][kSquare + 1];
  for (int64_t r0 = begin; r0 < end; r0 += kSquare) {
    const int64_t height = std::min(kSquare, end - r0);
    for (int64_t c0 = 0; c0 < inner.size; c0 += kSquare) {
      const int64_t width = std::min(kSquare, inner.size - c0);
      const T* from = x + r0 * rows.x + c0 * inner.x;
      T* to = y + r0 * rows.y + c0 * inner.y;
      for (int64_t c = 0; c < width; ++c) {
        for (int64_t r = 0; r < height; ++r) square[r][c] = from[r * rows.x + c * inner.x];
      }
      for (int64_t r = 0; r < height; ++r) {
        for (int64_t c = 0; c < width; ++c) to[r * rows.y + c * inner.y] = square[r][c];
      }
    }
  }
}

// T is any type with the size of the elements.
template <typename T>
void copy_typed(const Exec& exec, const CopyArgs& a) {
  const CopyPlan plan(a.x, a.y);
  const auto* x = static_cast<const T*>(a.x.data);
  auto* y = static_cast<T*>(a.y.data);
  const CopyDim inner = plan.inner(), rows = plan.rows();
  constexpr int64_t kGrain = 32768;  // elements per chunk of work
  if (plan.count == 2 && rows.size == 1 && inner.x == 1 && inner.y == 1) {
    parallel_for(exec, inner.size, kGrain, [&](int64_t begin, int64_t end) {
      std::memcpy(y + begin, x + begin, size_t(end - begin) * sizeof(T));
    });
    return;
  }
  int64_t outer = 1;
  for (int i = 0; i < plan.count - 2; ++i) outer *= plan.dims[size_t(i)].size;
  // A chunk of work is a number of consecutive tile rows, a multiple of the height of a square.
  const int64_t grain = (kGrain / inner.size / 32 + 1) * 32;
  parallel_for(exec, outer * rows.size, grain, [&](int64_t begin, int64_t end) {
    while (begin < end) {
      int64_t index = begin / rows.size;
      const int64_t row = begin % rows.size, stop = std::min(rows.size, row + end - begin);
      int64_t x_at = 0, y_at = 0;
      for (int i = plan.count - 3; i >= 0; --i) {
        const CopyDim& dim = plan.dims[size_t(i)];
        x_at += index % dim.size * dim.x;
        y_at += index % dim.size * dim.y;
        index /= dim.size;
      }
      copy_rows(x + x_at, y + y_at, rows, inner, row, stop);
      begin += stop - row;
    }
  });
}

// Calls fn.template operator()<T>() for the type T of any dtype.
template <class Fn>
void dispatch_any(DType dtype, const Fn& fn) {
  switch (dtype) {
    case DType::kF64: return fn.template operator()<double>();
    case DType::kI32: return fn.template operator()<int32_t>();
    case DType::kI64: return fn.template operator()<int64_t>();
    case DType::kU8: return fn.template operator()<uint8_t>();
    case DType::kU16: return fn.template operator()<uint16_t>();
    case DType::kU32: return fn.template operator()<uint32_t>();
    default: return dispatch_float(dtype, fn);
  }
}

template <typename To, typename From>
To converted(From x) {
  if constexpr (std::is_arithmetic_v<From>) {
    if constexpr (std::is_integral_v<To> && std::is_floating_point_v<From>) {
      return truncated<To>(double{x});
    } else if constexpr (std::is_arithmetic_v<To>) {
      return static_cast<To>(x);
    } else {
      return To(static_cast<float>(x));
    }
  } else {
    return converted<To>(to_f32(x));
  }
}

void convert(const Exec& exec, const View& from, const View& to) {
  dispatch_any(from.dtype, [&]<typename From>() {
    dispatch_any(to.dtype, [&]<typename To>() {
      const From* x = from.as<From>();
      To* y = to.as<To>();
      parallel_for(exec, to.numel(), 16384, [=](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) y[i] = converted<To>(x[i]);
      });
    });
  });
}

template <typename T>
void fill_typed(const Exec& exec, const View& view, T value) {
  T* y = static_cast<T*>(view.data);
  parallel_for(exec, view.numel(), 32768,
               [&](int64_t begin, int64_t end) { std::fill(y + begin, y + end, value); });
}

}  // namespace

template <>
void cpu::run(const Exec& exec, const CopyArgs& a) {
  if (a.x.numel() == 0) return;
  if (a.x.dtype != a.y.dtype) return convert(exec, a.x, a.y);
  switch (dtype_size(a.x.dtype)) {
    case 1: return copy_typed<uint8_t>(exec, a);
    case 2: return copy_typed<uint16_t>(exec, a);
    case 4: return copy_typed<uint32_t>(exec, a);
    default: return copy_typed<uint64_t>(exec, a);
  }
}

template <>
void cpu::run(const Exec& exec, const FillArgs& a) {
  const double value = a.value;
  switch (a.y.dtype) {
    case DType::kF32: return fill_typed(exec, a.y, static_cast<float>(value));
    case DType::kBF16: return fill_typed(exec, a.y, bf16(static_cast<float>(value)));
    case DType::kF16: return fill_typed(exec, a.y, f16(static_cast<float>(value)));
    case DType::kF64: return fill_typed(exec, a.y, value);
    case DType::kI32: return fill_typed(exec, a.y, static_cast<int32_t>(value));
    case DType::kI64: return fill_typed(exec, a.y, static_cast<int64_t>(value));
    case DType::kU8: return fill_typed(exec, a.y, static_cast<uint8_t>(value));
    case DType::kU16: return fill_typed(exec, a.y, static_cast<uint16_t>(value));
    case DType::kU32: return fill_typed(exec, a.y, static_cast<uint32_t>(value));
  }
}

}  // namespace shale::kernels
