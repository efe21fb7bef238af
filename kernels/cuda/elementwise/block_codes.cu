#include "shale/kernels/block_codes.h"

#include "shale/kernels/check.h"
#include "shale/kernels/cuda/run.h"
#include "shale/kernels/simt/simt.h"

// A thread decodes eight neighbours of a row, which are in one block: it reads their codes and
// scale at once, and writes 16 or 32 bytes. NF4 levels are looked up in shared memory, because the
// lanes of a warp need different ones. The bits equal the CPU's.

namespace shale::kernels::SHALE_BACKEND {
namespace {

constexpr int kThreads = 256;
constexpr int kNeighbours = 8;
static_assert(kCodeBlock % kNeighbours == 0);

// The NF4 levels; kernels copy them from device memory to a table in shared memory.
struct Nf4Table {
  float levels[16];
};
constexpr Nf4Table nf4_table() {
  Nf4Table table{};
  for (size_t i = 0; i < 16; ++i) table.levels[i] = kNf4Levels[i];
  return table;
}
__device__ constexpr Nf4Table kNf4{nf4_table()};

struct CodedRows {
  const uint8_t* data;
  int64_t columns, row_bytes, scales;  // offset of the scales in a row, in bytes

  __device__ __forceinline__ float scale(const uint8_t* row, int64_t column) const {
    return reinterpret_cast<const float*>(row + scales)[column / kCodeBlock];
  }
};

template <typename T>
__device__ __forceinline__ void store_scaled(T* y, const Floats<kNeighbours>& levels, float scale) {
  constexpr int kPack = kPackSize<T>;
#pragma unroll
  for (int first = 0; first < kNeighbours; first += kPack) {
    Floats<kPack> out;
#pragma unroll
    for (int i = 0; i < kPack; ++i) out.at[i] = levels.at[first + i] * scale;
    store_floats(y + first, out);
  }
}

template <typename T, BlockCode kCode>
__global__ void __launch_bounds__(kThreads) decode_blocks_kernel(CodedRows x, T* y, int64_t n) {
  await_previous_grid();
  float* const table = shared<Nf4Table>().levels;
  if constexpr (kCode == BlockCode::kNf4) {
    if (threadIdx.x < 16) table[threadIdx.x] = kNf4.levels[threadIdx.x];
    __syncthreads();
  }
  const int64_t first = (blockIdx.x * int64_t{kThreads} + threadIdx.x) * kNeighbours;
  if (first >= n) return;
  const int64_t number = first / x.columns, column = first - number * x.columns;
  const uint8_t* const row = x.data + number * x.row_bytes;
  Floats<kNeighbours> levels;
  if constexpr (kCode == BlockCode::kNf4) {
    const uint32_t codes = *reinterpret_cast<const uint32_t*>(row + column / 2);
#pragma unroll
    for (int i = 0; i < kNeighbours; ++i) {
      // A byte has the first code in its upper half.
      const int shift = i / 2 * 8 + (i % 2 == 0 ? 4 : 0);
      levels.at[i] = table[codes >> shift & 15];
    }
  } else {
    const auto* const codes = reinterpret_cast<const uint32_t*>(row + column);
#pragma unroll
    for (int i = 0; i < kNeighbours; ++i) {
      const uint32_t byte = codes[i / 4] >> (i % 4 * 8) & 255;
      levels.at[i] = static_cast<float>(static_cast<int8_t>(byte));
    }
  }
  store_scaled(y + first, levels, x.scale(row, column));
}

// Encoding: a warp encodes a block. A lane has two neighbours, whose codes are two bytes (int8) or
// one (NF4).
constexpr int kWarps = kThreads / kWarpSize;
static_assert(kCodeBlock == 2 * kWarpSize);

__device__ __forceinline__ uint32_t nf4_code(const float* boundaries, float x) {
  uint32_t code = 0;
#pragma unroll
  for (int i = 0; i < 15; ++i) code += x > boundaries[i] ? 1 : 0;
  return code;
}

template <typename T, BlockCode kCode>
__global__ void __launch_bounds__(kThreads)
    encode_blocks_kernel(const T* x, CodedRows y, uint8_t* rows, int64_t n) {
  await_previous_grid();
  float* const boundaries = shared<Nf4Table>().levels;  // midpoints between neighbouring levels
  if constexpr (kCode == BlockCode::kNf4) {
    if (threadIdx.x < 15) {
      boundaries[threadIdx.x] = (kNf4.levels[threadIdx.x] + kNf4.levels[threadIdx.x + 1]) / 2;
    }
    __syncthreads();
  }
  const int lane = threadIdx.x % kWarpSize;
  const int64_t block = blockIdx.x * int64_t{kWarps} + threadIdx.x / kWarpSize;
  if (block * kCodeBlock >= n) return;
  const int64_t first = block * kCodeBlock + 2 * lane;
  const float a = to_float(x[first]), b = to_float(x[first + 1]);
  const float most = std::numeric_limits<float>::max();
  const float largest = warp_max(fmaxf(fabsf(a), fabsf(b)));  // fmaxf ignores NaN
  const bool is_finite = warp_sum(fabsf(a) <= most && fabsf(b) <= most ? 0 : 1) == 0;
  const BlockScale scale = is_finite ? block_scale(kCode, largest) : BlockScale{};
  const int64_t number = first / y.columns, column = first - number * y.columns;
  uint8_t* const row = rows + number * y.row_bytes;
  if (lane == 0) {
    reinterpret_cast<float*>(row + y.scales)[column / kCodeBlock] =
        is_finite ? scale.scale : std::numeric_limits<float>::quiet_NaN();
  }
  if constexpr (kCode == BlockCode::kNf4) {
    const uint32_t codes = nf4_code(boundaries, a * scale.inverse) << 4 |
                           nf4_code(boundaries, b * scale.inverse);
    row[column / 2] = static_cast<uint8_t>(is_finite ? codes : 0);
  } else {
    const auto code = [&](float value) {
      const int level = is_finite ? static_cast<int>(rintf(value * scale.inverse)) : 0;
      return static_cast<uint32_t>(level) & 255;
    };
    *reinterpret_cast<uint16_t*>(row + column) = static_cast<uint16_t>(code(a) | code(b) << 8);
  }
}

}  // namespace

template <>
void run(const Exec& exec, const EncodeBlocksArgs& a) {
  const int64_t n = a.x.numel(), columns = a.x.ndim() == 2 ? a.x.size(1) : 0;
  if (n == 0) return;
  const CodedRows y = {a.y.as<uint8_t>(), columns, a.y.size(1), code_bytes(a.code, columns)};
  const simt::LaunchConfig launch = {.grid = ceil_div(n, int64_t{kWarps} * kCodeBlock),
                                     .block = kThreads};
  dispatch_float(a.x.dtype, [&]<typename T>() {
    const auto encode = [&](auto kernel) {
      simt::launch(kernel, launch, exec, a.x.as<T>(), y, a.y.as<uint8_t>(), n);
    };
    if (a.code == BlockCode::kNf4) {
      encode(encode_blocks_kernel<T, BlockCode::kNf4>);
    } else {
      encode(encode_blocks_kernel<T, BlockCode::kInt8>);
    }
  });
}

template <>
void run(const Exec& exec, const DecodeBlocksArgs& a) {
  const int64_t n = a.y.numel(), columns = a.y.ndim() == 2 ? a.y.size(1) : 0;
  if (n == 0) return;
  const CodedRows x = {a.x.as<uint8_t>(), columns, a.x.size(1), code_bytes(a.code, columns)};
  const simt::LaunchConfig launch = {.grid = ceil_div(n, int64_t{kThreads} * kNeighbours),
                                     .block = kThreads};
  dispatch_float(a.y.dtype, [&]<typename T>() {
    const auto decode = [&](auto kernel) { simt::launch(kernel, launch, exec, x, a.y.as<T>(), n); };
    if (a.code == BlockCode::kNf4) {
      decode(decode_blocks_kernel<T, BlockCode::kNf4>);
    } else {
      decode(decode_blocks_kernel<T, BlockCode::kInt8>);
    }
  });
}

}  // namespace shale::kernels::SHALE_BACKEND
