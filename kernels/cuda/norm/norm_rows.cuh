#pragma once

#include <algorithm>
#include <initializer_list>

#include "shale/base/view.h"
#include "shale/kernels/cuda/grid.h"
#include "shale/kernels/cuda/reduce/row_sums.cuh"

// How norms go through rows. A row belongs to a warp, or to a block where it is wider; a thread has
// kPacks packs of it, as many packs apart as the row has threads. Warps and blocks stay for many
// rows, which are fetched ahead into shared memory, so that memory is busy while a row is being
// summed.

namespace shale::kernels::SHALE_BACKEND {

inline constexpr int kWarpThreads = 128;     // of a block whose warps have rows of their own
inline constexpr int kWarpPacks = 3;         // of a lane at most: rows of 768 columns of 16 bits
inline constexpr int kBlockPacks = 4;        // of a thread of a block that has one row at a time
inline constexpr int kMaxRowThreads = 512;   // of such a block
inline constexpr int kGeneralThreads = 256;  // of a block that reads its row several times
inline constexpr int kKeptPacks = 3;         // of each operand in registers between two passes

// Rows under way, the one in use included: as many as the shared memory of an A100 has room for.
template <int kPacks, int kOperands>
inline constexpr int kRowStages = kPacks* kOperands <= 6 ? 3 : 2;

struct RowStats {
  float mean, rstd;
};

// [rows, cols]
template <typename T, int kOperands>
struct RowOperands {
  const T* at[kOperands];  // null: left out; never the first
  int64_t rows;
  int cols;
};

// The row's threads, of which this is one.
template <bool kWarpPerRow>
struct RowThreads {
  int lanes, lane;
  int64_t first;   // row
  int64_t stride;  // to the next

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

// A thread's packs of coming rows, in shared memory: slots that no other thread touches.
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

  // Waits for `row`, and starts to fetch the one that the queue then has room for.
  __device__ __forceinline__ void wait(int64_t row) {
    fetch(row + (kStages - 1) * threads_.stride);
    cp_async_wait<kStages - 1>();
  }
  __device__ __forceinline__ Pack<T> pack(int operand, int k) const {
    return load_pack(slot(out_, operand, k));
  }
  // The row has been read.
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
  int in_ = 0, out_ = 0;  // stages
};

template <int kPacks, int kOperands>
constexpr int64_t row_queue_bytes(int64_t threads) {
  return int64_t{kRowStages<kPacks, kOperands>} * kOperands * kPacks * threads * 16;
}

// Whether a block may have so much dynamic shared memory beside its static objects.
inline bool block_has_room(const Exec& exec, int64_t bytes) {
  constexpr int64_t kBesides = 1024;
  return bytes + kBesides <= static_cast<int64_t>(gpu_model(exec.device.arch).block_shared_bytes);
}

// fn.template operator()<kPacks, kWarpPerRow>(threads of a block) for rows of so many packs of
// kOperands. False: they are too wide, or a block has no room for as many of them as are under way.
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
