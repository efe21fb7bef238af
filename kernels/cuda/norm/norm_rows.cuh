#pragma once

#include <algorithm>
#include <initializer_list>

#include "shale/base/view.h"
#include "shale/kernels/cuda/grid.h"
#include "shale/kernels/cuda/reduce/row_sums.cuh"

// Mapping of rows to threads in norms. A row belongs to a warp or, if it is wider, to a block. A
// thread has kPacks packs of it, interleaved with those of the row's other threads. Warps and
// blocks process many rows, which are prefetched into shared memory, so that memory is busy while a
// row is summed.

namespace shale::kernels::SHALE_BACKEND {

inline constexpr int kWarpThreads = 128;     // block size if each warp has its own rows
inline constexpr int kWarpPacks = 3;         // maximum packs per lane: 768 columns of 16 bits
inline constexpr int kBlockPacks = 4;        // maximum packs per thread if a block has one row
inline constexpr int kMaxRowThreads = 512;   // maximum block size if a block has one row
inline constexpr int kGeneralThreads = 256;  // block size if a block reads its row several times
inline constexpr int kKeptPacks = 3;         // packs per operand kept in registers between passes

// Rows in flight, including the one in use: as many as fit the shared memory of an A100.
template <int kPacks, int kOperands>
inline constexpr int kRowStages = kPacks* kOperands <= 6 ? 3 : 2;

struct RowStats {
  float mean, rstd;
};

// Operands of shape [rows, cols].
template <typename T, int kOperands>
struct RowOperands {
  const T* at[kOperands];  // null: the operand is omitted; at[0] is not null
  int64_t rows;
  int cols;
};

// The threads that process a row, from the view of one of them: `lane` of `lanes`.
template <bool kWarpPerRow>
struct RowThreads {
  int lanes, lane;
  int64_t first;   // first row
  int64_t stride;  // distance to the next row

  __device__ __forceinline__ RowThreads()
      : lanes(kWarpPerRow ? kWarpSize : static_cast<int>(blockDim.x)),
        lane(static_cast<int>(threadIdx.x) % lanes),
        first(int64_t{blockIdx.x} * (blockDim.x / lanes) + threadIdx.x / lanes),
        stride(int64_t{gridDim.x} * (blockDim.x / lanes)) {}

  // First column of the thread's pack k.
  template <typename T>
  __device__ __forceinline__ int column(int k) const {
    return (k * lanes + lane) * kPackSize<T>;
  }
};

// The thread's packs of the next rows, in shared memory. No other thread accesses them.
template <typename T, int kPacks, bool kWarpPerRow, int kOperands>
class RowQueue {
 public:
  static constexpr int kStages = kRowStages<kPacks, kOperands>;

  __device__ __forceinline__ RowQueue(const RowOperands<T, kOperands>& operands,
                                      const RowThreads<kWarpPerRow>& threads)
      : operands_(operands), threads_(threads) {
#pragma unroll
    for (int i = 0; i < kStages - 1; ++i) fetch(threads.first + i * threads.stride);
  }

  // Waits for `row`, and starts to fetch a later row into the free stage.
  __device__ __forceinline__ void wait(int64_t row) {
    fetch(row + (kStages - 1) * threads_.stride);
    cp_async_wait<kStages - 1>();
  }
  __device__ __forceinline__ Pack<T> pack(int operand, int k) const {
    return load_pack(slot(out_, operand, k));
  }
  // Frees the stage of the row that has been read.
  __device__ __forceinline__ void taken() {
    out_ = out_ + 1 == kStages ? 0 : out_ + 1;
  }

 private:
  __device__ __forceinline__ T* slot(int stage, int operand, int k) const {
    const int pack = ((stage * kOperands + operand) * kPacks + k) * static_cast<int>(blockDim.x);
    return dynamic_shared<T>() + (pack + static_cast<int>(threadIdx.x)) * kPackSize<T>;
  }
  __device__ __forceinline__ void fetch(int64_t row) {
    if (row < operands_.rows) {
#pragma unroll
      for (int operand = 0; operand < kOperands; ++operand) {
        if (operands_.at[operand] == nullptr) continue;
        const T* from = operands_.at[operand] + row * operands_.cols;
#pragma unroll
        for (int k = 0; k < kPacks; ++k) {
          const int c = threads_.template column<T>(k);
          if (c < operands_.cols) cp_async<16>(slot(in_, operand, k), from + c);
        }
      }
    }
    cp_async_commit();
    in_ = in_ + 1 == kStages ? 0 : in_ + 1;
  }

  const RowOperands<T, kOperands>& operands_;
  const RowThreads<kWarpPerRow>& threads_;
  int in_ = 0, out_ = 0;  // stages of the next fetch, and of the next read
};

template <int kPacks, int kOperands>
constexpr int64_t row_queue_bytes(int64_t threads) {
  return int64_t{kRowStages<kPacks, kOperands>} * kOperands * kPacks * threads * 16;
}

// Returns whether a block may use this dynamic shared memory besides its static objects.
inline bool block_has_room(const Exec& exec, int64_t bytes) {
  constexpr int64_t kBesides = 1024;
  return bytes + kBesides <= static_cast<int64_t>(gpu_model(exec.device.arch).block_shared_bytes);
}

// Calls fn.template operator()<kPacks, kWarpPerRow>(threads per block) for rows of this number of
// packs and kOperands operands. Returns false if the rows are too wide for a block's shared memory.
template <int kOperands, class Fn>
bool with_row_mapping(const Exec& exec, int64_t packs, const Fn& fn) {
  const auto has_room = [&]<int kPacks>(int64_t threads) {
    return block_has_room(exec, row_queue_bytes<kPacks, kOperands>(threads));
  };
  if (packs <= kWarpSize) {
    fn.template operator()<1, true>(kWarpThreads);
  } else if (packs <= kWarpPacks * kWarpSize) {
    fn.template operator()<kWarpPacks, true>(kWarpThreads);
  } else if (packs <= 2 * kMaxRowThreads) {
    const int64_t threads = ceil_div(ceil_div(packs, 2), kWarpSize) * kWarpSize;
    if (!has_room.template operator()<2>(threads)) return false;
    fn.template operator()<2, false>(threads);
  } else if (packs <= kBlockPacks * kMaxRowThreads &&
             has_room.template operator()<kBlockPacks>(kMaxRowThreads)) {
    fn.template operator()<kBlockPacks, false>(kMaxRowThreads);
  } else {
    return false;
  }
  return true;
}

template <typename T>
bool rows_are_packed(int64_t cols, std::initializer_list<const void*> operands) {
  bool packed = cols % kPackSize<T> == 0;
  for (const void* operand : operands) packed &= reinterpret_cast<uintptr_t>(operand) % 16 == 0;
  return packed;
}

template <typename T>
T* data_of(const View& view) {
  return view.defined() ? view.as<T>() : nullptr;
}

}  // namespace shale::kernels::SHALE_BACKEND
