#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "shale/kernels/check.h"
#include "shale/kernels/convert.h"
#include "shale/kernels/copy_plan.h"
#include "shale/kernels/cuda/run.h"
#include "shale/kernels/elementwise.h"
#include "shale/kernels/simt/simt.h"

// The copy kernels read and write every byte once, in the largest words (1 to 16 bytes) that
// shapes, strides and addresses allow. If x and y are contiguous along different dimensions, square
// tiles go through shared memory, so that both are accessed contiguously. The fill kernel writes
// every byte once. The convert kernel chooses dtypes at run time: all threads of a launch take the
// same branches, and one kernel serves all pairs.

namespace shale::kernels::SHALE_BACKEND {
namespace {

constexpr int kThreads = 256;
constexpr int kWords = 4;  // words per thread
constexpr int kDims = kMaxDims;
constexpr int kTile = 32;

struct alignas(16) Word16 {
  uint32_t at[4];
};

// The outer dimensions of a copy, innermost first; strides in words.
struct OuterDims {
  int count = 0;
  int64_t size[kDims] = {};
  int64_t x[kDims] = {};
  int64_t y[kDims] = {};

  void add(const CopyDim& dim) {
    size[count] = dim.size, x[count] = dim.x, y[count] = dim.y;
    ++count;
  }
  int64_t blocks() const {
    int64_t product = 1;
    for (int i = 0; i < count; ++i) product *= size[i];
    return product;
  }
};

struct Offsets {
  int64_t x = 0, y = 0;
};

// Returns the offsets in x and y of element `number` of the outer dimensions. The loop is unrolled,
// because an array that is indexed at run time would be in local memory. A 64-bit division is fast
// if both numbers fit 32 bits.
__device__ __forceinline__ Offsets offsets_of(const OuterDims& dims, int64_t number) {
  Offsets at;
#pragma unroll
  for (int d = 0; d < kDims; ++d) {
    if (d < dims.count) {
      const int64_t index = d + 1 < dims.count ? number % dims.size[d] : number;
      if (d + 1 < dims.count) number /= dims.size[d];
      at.x += index * dims.x[d];
      at.y += index * dims.y[d];
    }
  }
  return at;
}

template <typename Word>
__global__ void __launch_bounds__(kThreads)
    copy_kernel(const Word* x, Word* y, OuterDims dims, int64_t words) {
  await_previous_grid();
  const int64_t first = int64_t{blockIdx.x} * kThreads * kWords + threadIdx.x;
  Word values[kWords];
  int64_t to[kWords];
#pragma unroll
  for (int k = 0; k < kWords; ++k) {
    const int64_t i = first + k * kThreads;
    if (i < words) {
      const Offsets at = offsets_of(dims, i);
      values[k] = x[at.x];
      to[k] = at.y;
    }
  }
#pragma unroll
  for (int k = 0; k < kWords; ++k) {
    if (first + k * kThreads < words) y[to[k]] = values[k];
  }
}

template <typename T>
struct Tile {
  T at[kTile][kTile + 1];  // odd row size: a column's elements are in different banks
};

// Copies one tile [down, across] per block; x is contiguous along `down`, y along `across`.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    transpose_kernel(const T* x, T* y, CopyDim down, CopyDim across, OuterDims outer) {
  await_previous_grid();
  Tile<T>& tile = shared<Tile<T>>();
  const int64_t tiles_down = ceil_div(down.size, kTile),
                tiles_across = ceil_div(across.size, kTile);
  const int64_t number = blockIdx.x;
  const int64_t c0 = number % tiles_across * kTile, r0 = number / tiles_across % tiles_down * kTile;
  const Offsets at = offsets_of(outer, number / (tiles_across * tiles_down));
  const int lane = threadIdx.x % kTile, line = threadIdx.x / kTile;
  constexpr int kLines = kThreads / kTile;
  const int64_t r = r0 + lane, c = c0 + lane;
  for (int i = line; i < kTile; i += kLines) {
    if (r < down.size && c0 + i < across.size) {
      tile.at[lane][i] = x[at.x + r * down.x + (c0 + i) * across.x];
    }
  }
  __syncthreads();
  for (int i = line; i < kTile; i += kLines) {
    if (r0 + i < down.size && c < across.size) {
      y[at.y + (r0 + i) * down.y + c * across.y] = tile.at[i][lane];
    }
  }
}

// Returns the dimension along which x is contiguous, if y is contiguous along another one; else -1.
int dimension_of_x(const CopyPlan& plan) {
  int best = -1;
  int64_t stride = plan.inner().x;
  for (int i = 0; i + 1 < plan.count; ++i) {
    const CopyDim& dim = plan.dims[size_t(i)];
    if (dim.size > 1 && std::abs(dim.x) < std::abs(stride)) best = i, stride = dim.x;
  }
  // A stride of 0 repeats an element, so reading along it gains nothing.
  return stride == 0 ? -1 : best;
}

template <typename T>
void launch_transpose(const Exec& exec, const CopyArgs& a, const CopyPlan& plan, int down_index) {
  OuterDims outer;
  for (int i = plan.count - 2; i >= 0; --i) {
    if (i != down_index) outer.add(plan.dims[size_t(i)]);
  }
  const CopyDim down = plan.dims[size_t(down_index)], across = plan.inner();
  const int64_t tiles = ceil_div(down.size, kTile) * ceil_div(across.size, kTile) * outer.blocks();
  simt::launch(transpose_kernel<T>, {.grid = tiles, .block = kThreads}, exec,
               static_cast<const T*>(a.x.data), static_cast<T*>(a.y.data), down, across, outer);
}

// Returns the largest word, in bytes: the largest power of two up to 16 that divides all sizes,
// strides and addresses.
int64_t word_bytes(const CopyArgs& a, const CopyPlan& plan, int64_t element) {
  if (plan.inner().x != 1 || plan.inner().y != 1) return element;
  uint64_t all = 16 | reinterpret_cast<uintptr_t>(a.x.data) |
                 reinterpret_cast<uintptr_t>(a.y.data) |
                 static_cast<uint64_t>(plan.inner().size * element);
  for (int i = 0; i + 1 < plan.count; ++i) {
    const CopyDim& dim = plan.dims[size_t(i)];
    all |= static_cast<uint64_t>(dim.x * element) | static_cast<uint64_t>(dim.y * element);
  }
  return static_cast<int64_t>(all & -all);
}

template <typename Word>
void launch_copy(const Exec& exec, const CopyArgs& a, const CopyPlan& plan) {
  const int64_t element = dtype_size(a.x.dtype), word = sizeof(Word);
  OuterDims dims;
  const CopyDim inner = plan.inner();
  // A word is at least one element, because the element size divides all sizes, strides and
  // addresses.
  const int64_t per_word = word / element;
  dims.add(per_word == 1 ? inner : CopyDim{inner.size / per_word, 1, 1});
  for (int i = plan.count - 2; i >= 0; --i) {
    const CopyDim& dim = plan.dims[size_t(i)];
    if (dim.size > 1) dims.add({dim.size, dim.x / per_word, dim.y / per_word});
  }
  const int64_t words = dims.blocks();
  simt::launch(copy_kernel<Word>, {.grid = ceil_div(words, kThreads * kWords), .block = kThreads},
               exec, static_cast<const Word*>(a.x.data), static_cast<Word*>(a.y.data), dims, words);
}

// Calls fn.template operator()<Word>() for the type with this word size.
template <class Fn>
void dispatch_element(int64_t bytes, const Fn& fn) {
  switch (bytes) {
    case 1: return fn.template operator()<uint8_t>();
    case 2: return fn.template operator()<uint16_t>();
    case 4: return fn.template operator()<uint32_t>();
    default: return fn.template operator()<uint64_t>();
  }
}
template <class Fn>
void dispatch_word(int64_t bytes, const Fn& fn) {
  if (bytes == 16) return fn.template operator()<Word16>();
  dispatch_element(bytes, fn);
}

// ---- convert ----

// A value during its conversion: an integer in `whole`, or another number in `real`.
struct Number {
  double real = 0;
  int64_t whole = 0;
  bool is_whole = false;
};

__device__ __forceinline__ Number number_at(const View& x, int64_t i) {
  const auto real = [](double value) { return Number{value, 0, false}; };
  const auto whole = [](int64_t value) { return Number{0, value, true}; };
  switch (x.dtype) {
    case DType::kF32: return real(static_cast<const float*>(x.data)[i]);
    case DType::kBF16: return real(to_float(static_cast<const bf16*>(x.data)[i]));
    case DType::kF16: return real(to_float(static_cast<const f16*>(x.data)[i]));
    case DType::kF64: return real(static_cast<const double*>(x.data)[i]);
    case DType::kI32: return whole(static_cast<const int32_t*>(x.data)[i]);
    case DType::kI64: return whole(static_cast<const int64_t*>(x.data)[i]);
    case DType::kU8: return whole(static_cast<const uint8_t*>(x.data)[i]);
    case DType::kU16: return whole(static_cast<const uint16_t*>(x.data)[i]);
    case DType::kU32: return whole(static_cast<const uint32_t*>(x.data)[i]);
  }
  return {};
}

template <typename T>
__device__ __forceinline__ void set_whole(const View& y, int64_t i, const Number& number) {
  static_cast<T*>(y.data)[i] =
      number.is_whole ? static_cast<T>(number.whole) : truncated<T>(number.real);
}

__device__ __forceinline__ void set_number(const View& y, int64_t i, const Number& number) {
  const auto f32 =
      number.is_whole ? static_cast<float>(number.whole) : static_cast<float>(number.real);
  switch (y.dtype) {
    case DType::kF32: static_cast<float*>(y.data)[i] = f32; return;
    case DType::kBF16: static_cast<bf16*>(y.data)[i] = from_float<bf16>(f32); return;
    case DType::kF16: static_cast<f16*>(y.data)[i] = from_float<f16>(f32); return;
    case DType::kF64:
      static_cast<double*>(y.data)[i] =
          number.is_whole ? static_cast<double>(number.whole) : number.real;
      return;
    case DType::kI32: return set_whole<int32_t>(y, i, number);
    case DType::kI64: return set_whole<int64_t>(y, i, number);
    case DType::kU8: return set_whole<uint8_t>(y, i, number);
    case DType::kU16: return set_whole<uint16_t>(y, i, number);
    case DType::kU32: return set_whole<uint32_t>(y, i, number);
  }
}

// x, y: only their data and dtypes are used.
__global__ void __launch_bounds__(kThreads) convert_kernel(View x, View y, int64_t count) {
  await_previous_grid();
  const int64_t first = int64_t{blockIdx.x} * kThreads * kWords + threadIdx.x;
#pragma unroll
  for (int k = 0; k < kWords; ++k) {
    const int64_t i = first + k * kThreads;
    if (i < count) set_number(y, i, number_at(x, i));
  }
}

// ---- fill ----

struct FillPattern {
  alignas(16) unsigned char bytes[16];
};

template <typename Word>
__global__ void __launch_bounds__(kThreads) fill_kernel(Word* y, Word value, int64_t words) {
  await_previous_grid();
  const int64_t first = int64_t{blockIdx.x} * kThreads * kWords + threadIdx.x;
#pragma unroll
  for (int k = 0; k < kWords; ++k) {
    if (first + k * kThreads < words) y[first + k * kThreads] = value;
  }
}

template <typename Word>
void launch_fill(const Exec& exec, void* y, const FillPattern& pattern, int64_t bytes) {
  Word value;
  std::memcpy(&value, pattern.bytes, sizeof value);
  const int64_t words = bytes / static_cast<int64_t>(sizeof value);
  simt::launch(fill_kernel<Word>, {.grid = ceil_div(words, kThreads * kWords), .block = kThreads},
               exec, static_cast<Word*>(y), value, words);
}

// Returns a 16-byte pattern that repeats the value.
FillPattern pattern_of(DType dtype, double value) {
  FillPattern pattern;
  const auto repeat = [&](auto element) {
    for (size_t at = 0; at < 16; at += sizeof element) {
      std::memcpy(pattern.bytes + at, &element, sizeof element);
    }
  };
  switch (dtype) {
    case DType::kF32: repeat(static_cast<float>(value)); break;
    case DType::kBF16: repeat(bf16(static_cast<float>(value))); break;
    case DType::kF16: repeat(f16(static_cast<float>(value))); break;
    case DType::kF64: repeat(value); break;
    case DType::kI32: repeat(static_cast<int32_t>(value)); break;
    case DType::kI64: repeat(static_cast<int64_t>(value)); break;
    case DType::kU8: repeat(static_cast<uint8_t>(value)); break;
    case DType::kU16: repeat(static_cast<uint16_t>(value)); break;
    case DType::kU32: repeat(static_cast<uint32_t>(value)); break;
  }
  return pattern;
}

}  // namespace

template <>
void run(const Exec& exec, const CopyArgs& a) {
  if (a.x.numel() == 0) return;
  if (a.x.dtype != a.y.dtype) {
    const int64_t count = a.x.numel();
    simt::launch(convert_kernel, {.grid = ceil_div(count, kThreads * kWords), .block = kThreads},
                 exec, a.x, a.y, count);
    return;
  }
  const CopyPlan plan(a.x, a.y);
  const int64_t element = dtype_size(a.x.dtype);
  const int across = dimension_of_x(plan);
  if (across >= 0) {
    dispatch_element(element, [&]<typename T>() { launch_transpose<T>(exec, a, plan, across); });
  } else {
    dispatch_word(word_bytes(a, plan, element),
                  [&]<typename Word>() { launch_copy<Word>(exec, a, plan); });
  }
}

template <>
void run(const Exec& exec, const FillArgs& a) {
  if (a.y.numel() == 0) return;
  const FillPattern pattern = pattern_of(a.y.dtype, a.value);
  // y has whole words of 16 bytes, and some bytes before and after them.
  const auto address = reinterpret_cast<uintptr_t>(a.y.data);
  const int64_t bytes = a.y.bytes();
  auto* y = static_cast<unsigned char*>(a.y.data);
  const int64_t before = std::min<int64_t>(bytes, static_cast<int64_t>(-address % 16));
  const int64_t whole = (bytes - before) / 16 * 16;
  dispatch_element(dtype_size(a.y.dtype), [&]<typename T>() {
    if (before > 0) launch_fill<T>(exec, y, pattern, before);
    if (whole > 0) launch_fill<Word16>(exec, y + before, pattern, whole);
    if (before + whole < bytes) {
      launch_fill<T>(exec, y + before + whole, pattern, bytes - before - whole);
    }
  });
}

}  // namespace shale::kernels::SHALE_BACKEND
