#pragma once

// Tiles of 16-bit elements in shared memory, and matmuls of them by one warp. kernels/simt/matrix.h
// describes which lane holds which elements of a fragment.

#include "shale/kernels/cuda/attention/attention_sequence.cuh"
#include "shale/kernels/simt/simt.h"

namespace shale::kernels::SHALE_BACKEND {

// A tile in shared memory, row-major, in chunks of 16 bytes. ldmatrix reads a column of chunks of 8
// rows at a time; a swizzle puts these chunks into different banks. Rows whose bytes are a multiple
// of 128 use all 8 chunks of a line of banks; two rows of 64 bytes (or of 192, modulo 128) share a
// line.
template <typename T, int kRowCount, int kColumnCount>
struct alignas(128) Tile {
  static constexpr int kRows = kRowCount, kColumns = kColumnCount, kChunks = kColumns / 8;
  static constexpr int kRowBytes = kColumns * 2;
  static constexpr int kSwizzled = kChunks % 8 == 0 ? 8 : 4;  // chunks that the swizzle permutes
  static_assert(sizeof(T) == 2 && kColumns % 32 == 0 && kRows % 16 == 0);

  T elements[kRows * kColumns];

  // Returns the offset of a chunk in bytes.
  __device__ __forceinline__ static int offset(int row, int chunk) {
    const int swizzle = kSwizzled == 8 ? row % 8 : row / 2 % 4;
    return row * kRowBytes + chunk / kSwizzled * (kSwizzled * 16) +
           (chunk % kSwizzled ^ swizzle) * 16;
  }
  // Returns the offset of the chunk that is `chunks` chunks (an even constant) to the right of
  // chunk 0 or 1, whose offset is `from`. It takes one operation, because the second term becomes
  // part of the load instruction.
  __device__ __forceinline__ static int right_of(int from, int chunks) {
    return (from ^ chunks % kSwizzled * 16) + chunks / kSwizzled * (kSwizzled * 16);
  }
  __device__ __forceinline__ T* at(int offset_bytes) {
    return reinterpret_cast<T*>(reinterpret_cast<char*>(elements) + offset_bytes);
  }
  // Returns the address of two neighbouring elements; `column` is even.
  __device__ __forceinline__ uint32_t* pair(int row, int column) {
    return reinterpret_cast<uint32_t*>(at(offset(row, column / 8)) + column % 8);
  }
};

// ---- Between global memory and tiles, by all threads of a block ----

// Mapping of threads to chunks. kLanes neighbouring threads copy the chunks of a row; kLanes
// divides the number of chunks. A thread advances by a multiple of 8 rows. So it copies the same
// chunks of every row, and their swizzle does not change.
template <class TileT, int kThreads>
struct TileThreads {
  static constexpr int kLanes = TileT::kChunks % 16 == 0 ? 16 : TileT::kChunks % 8 == 0 ? 8 : 4;
  static constexpr int kRowsAtOnce = kThreads / kLanes;
  static_assert(kRowsAtOnce % 8 == 0);
};

// Copies rows [begin, begin + kRows) of a head, with stride `stride`. Rows from `end` on and
// columns from `columns` on become zeros. Rows are multiples of 16 bytes and 16-byte aligned.
template <int kThreads, typename T, class TileT>
__device__ __forceinline__ void copy_tile_async(TileT& tile, const T* head, int64_t stride,
                                                int begin, int end, int columns) {
  using Threads = TileThreads<TileT, kThreads>;
  // The kernels are short of registers: opaque() keeps the compiler from keeping values from tile
  // to tile, and one pointer advances from row to row.
  const int thread = opaque(static_cast<int>(threadIdx.x));
  const int lane = thread % Threads::kLanes, first = thread / Threads::kLanes;
  const T* source = head + (begin + first) * stride + lane * 8;
  const int target = TileT::offset(first, lane);
#pragma unroll
  for (int pass = 0; pass < TileT::kRows; pass += Threads::kRowsAtOnce) {
    if (TileT::kRows % Threads::kRowsAtOnce != 0 && pass + first >= TileT::kRows) break;
    const bool valid = begin + pass + first < end;
#pragma unroll
    for (int index = 0; index < TileT::kChunks; index += Threads::kLanes) {
      cp_async<16>(tile.at(target + pass * TileT::kRowBytes + index * 16), source + index * 8,
                   valid && (index + lane) * 8 < columns);
    }
    source += Threads::kRowsAtOnce * stride;
  }
}

// Copies a tile to global memory, except rows and columns beyond the ends. Any alignment is
// allowed.
template <int kThreads, typename T, class TileT>
__device__ __forceinline__ void store_tile(TileT& tile, T* head, int64_t stride, int begin, int end,
                                           int columns) {
  using Threads = TileThreads<TileT, kThreads>;
  const int lane = threadIdx.x % Threads::kLanes;
  const bool packed = is_packed(head) && stride % 8 == 0 && columns % 8 == 0;
  for (int row = threadIdx.x / Threads::kLanes; row < TileT::kRows; row += Threads::kRowsAtOnce) {
    if (begin + row >= end) return;
    T* target = head + (begin + row) * stride;
    for (int index = lane; index * 8 < columns; index += Threads::kLanes) {
      const Pack<T> pack = load_pack(tile.at(TileT::offset(row, index)));
      if (packed) {
        store_pack(target + index * 8, pack);
      } else {
        for (int i = 0; i < 8 && index * 8 + i < columns; ++i) target[index * 8 + i] = pack.at[i];
      }
    }
  }
}

// ---- Fragments ----

// Return the row, and the column, of value i of an accumulator fragment [16, 8].
__device__ __forceinline__ int fragment_row(int i) {
  return lane_id() / 4 + i / 2 * 8;
}
__device__ __forceinline__ int fragment_column(int i) {
  return lane_id() % 4 * 2 + i % 2;
}

template <int kRowTiles, int kColumnTiles>
using Accumulators = float[kRowTiles][kColumnTiles][4];  // a matrix [16 kRowTiles, 8 kColumnTiles]
template <int kRowTiles, int kDepthTiles>
using Fragments = uint32_t[kRowTiles][kDepthTiles][4];  // operand a [16 kRowTiles, 16 kDepthTiles]

template <int kRowTiles, int kColumnTiles>
__device__ __forceinline__ void set_zero(float (&c)[kRowTiles][kColumnTiles][4]) {
#pragma unroll
  for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
    for (int j = 0; j < kColumnTiles; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) c[i][j][e] = 0.f;
    }
  }
}

template <int kRowTiles, int kColumnTiles>
__device__ __forceinline__ void scale_by(float (&c)[kRowTiles][kColumnTiles][4], float factor) {
#pragma unroll
  for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
    for (int j = 0; j < kColumnTiles; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) c[i][j][e] *= factor;
    }
  }
}

// Rounds accumulators to a left operand: two adjacent accumulators form one fragment without a
// shuffle.
template <typename T, int kRowTiles, int kDepthTiles>
__device__ __forceinline__ void round_to_fragments(const float (&c)[kRowTiles][2 * kDepthTiles][4],
                                                   uint32_t (&a)[kRowTiles][kDepthTiles][4]) {
#pragma unroll
  for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
    for (int k = 0; k < kDepthTiles; ++k) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float(&source)[4] = c[i][2 * k + e / 2];
        a[i][k][e] = pack_pair<T>(source[e % 2 * 2], source[e % 2 * 2 + 1]);
      }
    }
  }
}

// Rounds accumulators and writes them to a tile.
template <typename T, int kRowTiles, int kColumnTiles, class TileT>
__device__ __forceinline__ void put(const float (&c)[kRowTiles][kColumnTiles][4], TileT& tile,
                                    int row, int column) {
#pragma unroll
  for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
    for (int j = 0; j < kColumnTiles; ++j) {
#pragma unroll
      for (int e = 0; e < 4; e += 2) {
        *tile.pair(row + 16 * i + fragment_row(e), column + 8 * j + fragment_column(e)) =
            pack_pair<T>(c[i][j][e], c[i][j][e + 1]);
      }
    }
  }
}

// ---- Matmuls, c += a b. A loaded fragment of b is used for two columns of
// fragments of c and all its rows. ----

template <typename T, int kRowTiles, int kColumnTiles>
__device__ __forceinline__ void multiply(float (&c)[kRowTiles][kColumnTiles][4], int column_tile,
                                         const uint32_t (&a)[kRowTiles][4],
                                         const uint32_t (&b)[4]) {
  const uint32_t left[2] = {b[0], b[1]}, right[2] = {b[2], b[3]};
#pragma unroll
  for (int i = 0; i < kRowTiles; ++i) {
    mma_m16n8k16<T>(c[i][column_tile], a[i], left);
    mma_m16n8k16<T>(c[i][column_tile + 1], a[i], right);
  }
}

// Byte offsets of kTiles chunks of a row. The first one is first_chunk chunks to the right of
// `begin`; first_chunk is a multiple of kTiles. If the swizzle allows it, first_chunk is added to
// the offset once, otherwise at each access.
template <class TileT, int kTiles>
struct Columns {
  static constexpr bool kAtOnce = (kTiles & (kTiles - 1)) == 0;
  int offset, chunk;

  __device__ __forceinline__ Columns(int begin, int first_chunk)
      : offset(kAtOnce ? TileT::right_of(begin, first_chunk) : begin), chunk(first_chunk) {}
  __device__ __forceinline__ int operator()(int index) const {
    return TileT::right_of(offset, kAtOnce ? index : chunk + index);
  }
};

// Return the offset of the row that a lane passes to ldmatrix<4>, which loads a [16, 16] part of a
// tile. left_offset() loads it as a left operand, right_offset() as two adjacent right operands,
// whose columns are the tile's rows. All other addresses differ from this one by constants;
// opaque() keeps the compiler from holding them in registers.
template <class TileT>
__device__ __forceinline__ int left_offset(int row) {
  const int lane = lane_id();
  return opaque(TileT::offset(lane % 16, lane / 16) + row * TileT::kRowBytes);
}
template <class TileT>
__device__ __forceinline__ int right_offset(int row) {
  const int lane = lane_id();
  return opaque(TileT::offset(lane / 16 * 8 + lane % 8, lane / 8 % 2) + row * TileT::kRowBytes);
}

// Adds a b to c. a: the rows of a tile from a_row on. b: its columns are the rows of a tile from
// b_row on.
template <typename T, int kRowTiles, int kColumnTiles, class TileA, class TileB>
__device__ __forceinline__ void multiply_rows(float (&c)[kRowTiles][kColumnTiles][4], TileA& a,
                                              int a_row, TileB& b, int b_row) {
  static_assert(TileA::kChunks == TileB::kChunks && kColumnTiles % 2 == 0);
  const int a_offset = left_offset<TileA>(a_row), b_offset = right_offset<TileB>(b_row);
#pragma unroll
  for (int k = 0; k < TileA::kChunks; k += 2) {
    uint32_t left[kRowTiles][4];
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
      ldmatrix<4>(left[i], a.at(TileA::right_of(a_offset, k) + 16 * i * TileA::kRowBytes));
    }
#pragma unroll
    for (int j = 0; j < kColumnTiles; j += 2) {
      uint32_t right[4];
      ldmatrix<4>(right, b.at(TileB::right_of(b_offset, k) + 8 * j * TileB::kRowBytes));
      multiply<T>(c, j, left, right);
    }
  }
}

// Adds a b to c. b: the rows of a tile from b_row on, and its chunks from b_chunk on.
template <typename T, int kRowTiles, int kDepthTiles, int kColumnTiles, class TileB>
__device__ __forceinline__ void multiply_fragments(float (&c)[kRowTiles][kColumnTiles][4],
                                                   const uint32_t (&a)[kRowTiles][kDepthTiles][4],
                                                   TileB& b, int b_row, int b_chunk) {
  static_assert(kColumnTiles % 2 == 0);
  const Columns<TileB, kColumnTiles> b_columns(left_offset<TileB>(b_row), b_chunk);
#pragma unroll
  for (int k = 0; k < kDepthTiles; ++k) {
    uint32_t left[kRowTiles][4];
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
      for (int e = 0; e < 4; ++e) left[i][e] = a[i][k][e];
    }
#pragma unroll
    for (int j = 0; j < kColumnTiles; j += 2) {
      uint32_t right[4];
      ldmatrix<4, true>(right, b.at(b_columns(j) + 16 * k * TileB::kRowBytes));
      multiply<T>(c, j, left, right);
    }
  }
}

// Adds a b to c. a: its rows are the columns of a tile from chunk a_chunk on. b is as in
// multiply_fragments(). The summed dimension is all rows of a's tile.
template <typename T, int kRowTiles, int kColumnTiles, class TileA, class TileB>
__device__ __forceinline__ void multiply_columns(float (&c)[kRowTiles][kColumnTiles][4], TileA& a,
                                                 int a_chunk, TileB& b, int b_chunk) {
  static_assert(TileA::kRows == TileB::kRows && kColumnTiles % 2 == 0);
  const Columns<TileA, 2 * kRowTiles> a_columns(right_offset<TileA>(0), a_chunk);
  const Columns<TileB, kColumnTiles> b_columns(left_offset<TileB>(0), b_chunk);
#pragma unroll
  for (int k = 0; k < TileA::kRows; k += 16) {
    uint32_t left[kRowTiles][4];
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
      ldmatrix<4, true>(left[i], a.at(a_columns(2 * i) + k * TileA::kRowBytes));
    }
#pragma unroll
    for (int j = 0; j < kColumnTiles; j += 2) {
      uint32_t right[4];
      ldmatrix<4, true>(right, b.at(b_columns(j) + k * TileB::kRowBytes));
      multiply<T>(c, j, left, right);
    }
  }
}

}  // namespace shale::kernels::SHALE_BACKEND
