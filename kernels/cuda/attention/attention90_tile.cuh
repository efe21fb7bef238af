#pragma once

#include "shale/kernels/cuda/attention/attention_sequence.cuh"
#include "shale/kernels/cuda/attention/attention_softcap.cuh"
#include "shale/kernels/cuda/ring.cuh"
#include "shale/kernels/simt/hopper.h"

// Shared by Hopper's attention kernels: tiles of rows in shared memory, the loading warp, and
// operations on accumulators in the layout of kernels/simt/wgmma.h.
namespace shale::kernels::SHALE_BACKEND {

// ---- Tiles ----

// Rows of a head in shared memory, as adjacent boxes of 64 columns: lines of 128 bytes with TMA's
// swizzle. With 96 columns the last box is half empty: TMA fills missing columns with zeros.
template <int kRowCount, int kColumnCount>
struct alignas(1024) BoxedTile {
  static constexpr int kRows = kRowCount, kColumns = kColumnCount;
  static constexpr int kBoxes = (kColumns + 63) / 64, kBoxBytes = kRows * 128;
  static constexpr int kBytes = kBoxes * kBoxBytes;

  unsigned char bytes[kBytes];

  // Returns a wgmma operand whose rows (or columns, for b) are rows of the tile from `row` on, a
  // multiple of 8. A matmul takes 16 columns.
  __device__ __forceinline__ WgmmaTile<false> by_rows(int row, int column) const {
    const int box = box_of(column);
    return k_major(bytes + box * kBoxBytes + row * 128, column - 64 * box);
  }
  // Returns a wgmma operand whose rows (or columns, for b) are columns of the tile, from box `box`
  // on. A matmul takes 16 rows.
  __device__ __forceinline__ WgmmaTile<true> by_columns(int box, int row) const {
    return mn_major(bytes + box * kBoxBytes, row, kBoxBytes);
  }
  // Returns the address of 16 bytes of a row: the columns from 8 * chunk on.
  __device__ __forceinline__ unsigned char* chunk(int row, int chunk) {
    const int box = box_of(8 * chunk);
    return bytes + box * kBoxBytes + row * 128 + ((chunk - 8 * box) ^ (row % 8)) * 16;
  }

 private:
  // The box index is a compile-time constant if there is a single box.
  __device__ __forceinline__ static constexpr int box_of(int column) {
    return kBoxes == 1 ? 0 : column / 64;
  }
};

// A wgmma operand: tile number `stage` of a ring of tiles, which are kBytesApart bytes apart. Its
// descriptor is that of the first tile, which is constant in a loop, plus a multiple of the
// distance.
template <class TileT, size_t kBytesApart = sizeof(TileT)>
struct StageOperand {
  static constexpr int kRows = TileT::kRows, kColumns = TileT::kColumns;

  const TileT& first;
  int stage;

  __device__ __forceinline__ WgmmaTile<false> by_rows(int row, int column) const {
    return {first.by_rows(row, column).descriptor + distance()};
  }
  __device__ __forceinline__ WgmmaTile<true> by_columns(int box, int row) const {
    return {first.by_columns(box, row).descriptor + distance()};
  }

 private:
  __device__ __forceinline__ uint64_t distance() const {
    return static_cast<uint64_t>(stage) * (kBytesApart / 16);
  }
};

// ---- Loading, by one warp ----

// Makes the TMA map of an array [batch, rows, heads, D]. A box has kRows rows and 64 columns of one
// head.
template <int kRows>
TensorMap rows_map(const HeadView& view, DType dtype, int64_t batch, int64_t rows, int64_t heads,
                   int64_t head_size) {
  // TMA requires a valid stride even for a dimension of size 1.
  const auto stride = [&](int64_t value, int64_t count) { return count > 1 ? value : head_size; };
  return make_tensor_map(
      {.data = view.data,
       .dtype = dtype,
       .dims = 4,
       .sizes = {head_size, rows, heads, batch},
       .strides = {1, stride(view.row_stride, rows), stride(view.head_stride, heads),
                   stride(view.batch_stride, batch)},
       .box = {64, kRows, 1, 1}});
}

// Rows from `first` on of one head of one sequence. The sequence ends at row `end`; the array has
// `capacity` rows for it.
struct RowRange {
  int first, end, capacity, head, batch;
};

// The loading warp. TMA fills tiles with zeros beyond an array's end. But the rows between a
// sequence's end and the end of its memory may hold anything, even NaN; a probability of 0 times
// NaN would make a sum NaN. So the warp clears these rows: TMA signals a separate barrier, and the
// warp signals the consumers when it has cleared them.
class TileLoader {
 public:
  __device__ __forceinline__ explicit TileLoader(MBarrier& patch) : patch_(patch) {}

  template <class TileT>
  __device__ __forceinline__ void load(TileT& tile, const TensorMap& map, MBarrier& full,
                                       const RowRange& rows) {
    const int clear_end = std::min(rows.first + TileT::kRows, rows.capacity);
    const int clear_begin = std::max(rows.first, rows.end);
    const bool clears = clear_begin < clear_end;
    MBarrier& landing = clears ? patch_ : full;
    if (lane_id() == 0) {
      mbarrier_arrive_expect(landing, TileT::kBytes);
#pragma unroll
      for (int box = 0; box < TileT::kBoxes; ++box) {
        tma_load(tile.bytes + box * TileT::kBoxBytes, map, landing, 64 * box, rows.first, rows.head,
                 rows.batch);
      }
    }
    if (!clears) return;
    mbarrier_wait(patch_, parity_);
    parity_ ^= 1;
    for (int row = clear_begin - rows.first; row < clear_end - rows.first; ++row) {
      for (int chunk = lane_id(); chunk < TileT::kColumns / 8; chunk += kWarpSize) {
        store_shared_pack(reinterpret_cast<uint32_t*>(tile.chunk(row, chunk)), Pack<uint32_t>{});
      }
    }
    fence_proxy_async();
    __syncwarp();
    if (lane_id() == 0) mbarrier_arrive(full);
  }

 private:
  MBarrier& patch_;
  int parity_ = 0;
};

// ---- Matmuls by a warpgroup, in flight when these return ----

// Issues d = a b^T, with the 64 rows of a from `row` on and all rows of b.
template <typename T, class A, class B>
__device__ __forceinline__ void issue_product(float (&d)[B::kRows / 2], const A& a, int row,
                                              const B& b) {
  static_assert(A::kColumns == B::kColumns);
  wgmma_fence(d);
#pragma unroll
  for (int c = 0; c < A::kColumns; c += 16) {
    wgmma<T, B::kRows>(d, a.by_rows(row, c), b.by_rows(0, c), c > 0);
  }
  wgmma_commit();
}

// Issues d += a b, with a in registers, over `count` of a's operands from `first` on.
template <typename T, class B>
__device__ __forceinline__ void issue_sum(float (&d)[B::kColumns / 2],
                                          const uint32_t (&a)[B::kRows / 16][4], const B& b,
                                          int first = 0, int count = B::kRows / 16) {
  wgmma_fence(d);
#pragma unroll
  for (int k = first; k < first + count; ++k) {
    wgmma<T, B::kColumns>(d, a[k], b.by_columns(0, 16 * k), true);
  }
  wgmma_commit();
}

// ---- Accumulators of a warpgroup: d[4 j + e] is in row thread_row() + e / 2 * 8, column 8 j +
// thread_column() + e % 2. ----

__device__ __forceinline__ int warp_in_group() {
  return static_cast<int>(threadIdx.x) % kWarpgroupSize / kWarpSize;
}
__device__ __forceinline__ int thread_row() {
  return 16 * warp_in_group() + lane_id() / 4;
}
__device__ __forceinline__ int thread_column() {
  return lane_id() % 4 * 2;
}

template <int kCount>
__device__ __forceinline__ void set_zero(float (&d)[kCount]) {
#pragma unroll
  for (float& value : d) value = 0.f;
}

// Returns a value that depends on every element, for settle().
template <int kCount>
__device__ __forceinline__ uint32_t all_bits(const float (&d)[kCount]) {
  uint32_t bits = 0;
#pragma unroll
  for (const float value : d) bits ^= std::bit_cast<uint32_t>(value);
  return bits;
}

// Sets elements of masked keys to `value`. Rows are queries, and `query` is the thread's first row;
// columns are keys from `key` on.
template <int kCount>
__device__ __forceinline__ void mask_keys(float (&d)[kCount], const Sequence& sequence, int query,
                                          int key, float value) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int left = key + thread_column();
    const int visible = sequence.visible_keys(query + 8 * half) - left;
    const int first = sequence.first_key(query + 8 * half) - left;
#pragma unroll
    for (int i = 2 * half; i < kCount; i += 4) {
      const int column = 2 * i - 4 * half;
      if (column >= visible || column < first) d[i] = value;
      if (column + 1 >= visible || column + 1 < first) d[i + 1] = value;
    }
  }
}
// Zeroes elements of masked queries, in `blocks` blocks of 8 columns from `block` on. Rows are
// keys: queries [first_query, end_query) see the thread's two keys. Columns are queries from
// `query` on.
template <int kCount>
__device__ __forceinline__ void mask_queries(float (&d)[kCount], const int (&first_query)[2],
                                             const int (&end_query)[2], int query, int block = 0,
                                             int blocks = kCount / 4) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int left = query + thread_column();
    const int first = first_query[half] - left, end = end_query[half] - left;
#pragma unroll
    for (int i = 4 * block + 2 * half; i < 4 * (block + blocks); i += 4) {
      const int column = 2 * i - 4 * half;
      if (column < first || column >= end) d[i] = 0.f;
      if (column + 1 < first || column + 1 >= end) d[i + 1] = 0.f;
    }
  }
}

// Rounds accumulators to left operands: two adjacent blocks of 8 columns become one operand of 16
// columns. Writes `count` operands from `first` on.
template <typename T, int kCount>
__device__ __forceinline__ void round_to_operands(const float (&d)[kCount],
                                                  uint32_t (&a)[kCount / 8][4], int first = 0,
                                                  int count = kCount / 8) {
#pragma unroll
  for (int k = first; k < first + count; ++k) {
#pragma unroll
    for (int e = 0; e < 4; ++e) a[k][e] = pack_pair<T>(d[8 * k + 2 * e], d[8 * k + 2 * e + 1]);
  }
}

// Rounds a warp's 16 rows and writes them to a head with `end` rows, where the warpgroup's rows
// start at `first`. The rows go through shared memory, `staging`, where the warpgroup's rows start
// at `staging_row`, so that whole rows are written. Any alignment is allowed.
template <typename T, int kCount, class TileT>
__device__ __forceinline__ void store_rows(const float (&d)[kCount], TileT& staging,
                                           int staging_row, T* head, int64_t stride, int first,
                                           int end) {
  static_assert(TileT::kColumns == 2 * kCount);
  constexpr int kChunks = 2 * kCount / 8, kRowsAtOnce = kWarpSize / kChunks;
  __syncwarp();  // the warp has read the previous contents
  const int staged_row = opaque(staging_row + thread_row());
#pragma unroll
  for (int j = 0; j < kChunks; ++j) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      unsigned char* const chunk = staging.chunk(staged_row + 8 * half, j);
      *reinterpret_cast<uint32_t*>(chunk + 2 * thread_column()) =
          pack_pair<T>(d[4 * j + 2 * half], d[4 * j + 2 * half + 1]);
    }
  }
  __syncwarp();
  const bool packed = is_packed(head) && stride % 8 == 0;
  if (kWarpSize % kChunks != 0 && lane_id() >= kRowsAtOnce * kChunks) return;
  const int chunk = lane_id() % kChunks;
#pragma unroll 2
  for (int pass = 0; pass < 16; pass += kRowsAtOnce) {
    const int row = 16 * warp_in_group() + pass + lane_id() / kChunks;
    if (first + row >= end) return;
    T* const target = head + (first + row) * stride + 8 * chunk;
    const Pack<T> pack =
        load_pack(reinterpret_cast<const T*>(staging.chunk(staging_row + row, chunk)));
    if (packed) {
      store_pack(target, pack);
    } else {
      for (int i = 0; i < 8; ++i) target[i] = pack.at[i];
    }
  }
}

}  // namespace shale::kernels::SHALE_BACKEND
