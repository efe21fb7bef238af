#pragma once

#include "shale/kernels/gemm_plan.h"
#include "shale/kernels/gemm_problem.h"
#include "shale/kernels/simt/simt.h"

namespace shale::kernels::SHALE_BACKEND {

// ---- Sizes of a thread block's work. T is the dtype of a and b ----
//
// On A100 and H100 a GEMM with mma.sync is limited by the traffic between shared memory and
// registers, so a warp should compute 64x64: per step of 16 along k it then loads 4 KiB for 32 mma.
// 64x64 takes 128 accumulators. With two sets of fragments a thread stays below 255 registers, and
// 8 such warps fill a multiprocessor: two blocks of 128x128, of which one computes while the other
// waits or writes its result, or one of 128x256, which reads a quarter less. Four stages of 32
// along k are 64 KiB per 128x128 block: two fit the 164 KiB of an A100. The smaller tiles are for
// GEMMs that would otherwise leave multiprocessors idle.
template <typename T, GemmTile kTile>
struct GemmConfig;

// kBlocks: minimum resident blocks per multiprocessor, which limits the registers of a thread.
template <int kRows_, int kCols_, int kDepth_, int kWarpRows_, int kWarpCols_, int kStages_,
          int kBlocks_>
struct GemmSizes {
  static constexpr int kRows = kRows_, kCols = kCols_, kDepth = kDepth_;
  static constexpr int kWarpRows = kWarpRows_, kWarpCols = kWarpCols_;
  static constexpr int kWarpsAcross = kCols / kWarpCols;
  static constexpr int kThreads = kRows / kWarpRows * kWarpsAcross * kWarpSize;
  static constexpr int kStages = kStages_, kBlocks = kBlocks_;
  static constexpr bool kTf32 = false;
};
template <typename T>
struct GemmConfig<T, GemmTile::k64x64> : GemmSizes<64, 64, 32, 32, 32, 4, 3> {};
template <typename T>
struct GemmConfig<T, GemmTile::k128x64> : GemmSizes<128, 64, 32, 64, 32, 4, 3> {};
template <typename T>
struct GemmConfig<T, GemmTile::k128x128> : GemmSizes<128, 128, 32, 64, 64, 4, 2> {};
template <typename T>
struct GemmConfig<T, GemmTile::k128x256> : GemmSizes<128, 256, 32, 64, 64, 4, 1> {};

template <>
struct GemmConfig<float, GemmTile::k64x64> : GemmSizes<64, 64, 16, 32, 32, 4, 3> {};
template <>
struct GemmConfig<float, GemmTile::k128x128> : GemmSizes<128, 128, 16, 32, 64, 4, 1> {};

// Sizes for f32 operands that are rounded to tf32: half as much of k as for 16 bits, in the same
// number of bytes. There are eight warps, because fewer threads could not copy a line across k in
// permuted chunks.
template <GemmTile kTile>
struct Tf32Config;
template <>
struct Tf32Config<GemmTile::k64x64> : GemmSizes<64, 64, 16, 32, 32, 4, 3> {
  static constexpr bool kTf32 = true;
};
template <>
struct Tf32Config<GemmTile::k128x128> : GemmSizes<128, 128, 16, 32, 64, 4, 1> {
  static constexpr bool kTf32 = true;
};

// ---- An operand's part of a stage ----
//
// kOuter rows of a (columns of b) times kDepth of k, in lines as in global memory: with kAlongK a
// line is a row of a (a column of b), else it is one k. A line consists of 16-byte chunks. The
// chunks of a line are permuted by an exclusive or with the line's number, so that both the copies
// (neighbouring chunks of a line) and ldmatrix (the same chunk of 8 neighbouring lines) access all
// 32 banks once.
template <typename T, int kOuter_, int kDepth_, bool kAlongK_>
struct OperandTile {
  using Element = T;
  static constexpr int kOuter = kOuter_, kDepth = kDepth_;
  static constexpr bool kAlongK = kAlongK_;
  static constexpr int kChunk = 16 / sizeof(T);  // elements in a chunk
  static constexpr int kLines = kAlongK ? kOuter : kDepth;
  static constexpr int kLineChunks = (kAlongK ? kDepth : kOuter) / kChunk;
  static constexpr int kElements = kLines * kLineChunks * kChunk;
  static_assert(kLineChunks == 4 || kLineChunks % 8 == 0);

  // Returns the offset of a chunk in elements.
  static __device__ __forceinline__ int offset(int line, int chunk) {
    const int key = kLineChunks == 4 ? line / 2 % 4 : line % 8;  // two lines of 4 chunks per 128 B
    return (line * kLineChunks + (chunk ^ key)) * kChunk;
  }
};

// A tile of two operands, SwiGLU's b and b_up: 16 columns of b, then the same 16 columns of b_up,
// then the next 16 of b. So one block computes both values that an element of c needs, close to
// each other, and the matmul treats the tile like any other.
inline constexpr int kPairCols = 16;

__device__ __forceinline__ bool is_up_line(int line) {
  return line / kPairCols % 2 == 1;
}
// Maps a line of the paired tile to a line of its operand; paired_line() is the inverse.
__device__ __forceinline__ int line_of_operand(int line) {
  return line / (2 * kPairCols) * kPairCols + line % kPairCols;
}
__device__ __forceinline__ int paired_line(int line, bool up) {
  return (2 * (line / kPairCols) + (up ? 1 : 0)) * kPairCols + line % kPairCols;
}

// Copies an operand's tiles to shared memory, one stage after the other. A thread owns the same
// chunks of every stage. Elements outside the matrix become zero and are not read. With kPaired the
// tile has two operands, and a thread copies lines of one of them.
template <class Tile, int kThreads, bool kPaired = false>
class TileLoader {
  using T = typename Tile::Element;
  static constexpr int kChunk = Tile::kChunk, kLineChunks = Tile::kLineChunks;
  static constexpr int kLineStep = kThreads / kLineChunks;  // lines between two chunks of a thread
  static constexpr int kOwnStep = kPaired ? kLineStep / 2 : kLineStep;  // lines of b or b_up
  static constexpr int kCopies = Tile::kLines / kLineStep;
  static_assert(kThreads % kLineChunks == 0 && Tile::kLines % kLineStep == 0);
  static_assert(kLineStep % 8 == 0, "the chunks of a thread have one permutation");
  static_assert(!kPaired || (Tile::kAlongK && kLineStep % (2 * kPairCols) == 0));

 public:
  static __device__ __forceinline__ bool loads_up() {
    return kPaired && is_up_line(static_cast<int>(threadIdx.x) / kLineChunks);
  }

  // `matrix` is the operand that the thread copies: b_up if loads_up(). The tile begins at row
  // number `outer` of the `outers` rows of a (columns of b), and at number `k` of the summed
  // dimension. `start`: any readable address.
  __device__ __forceinline__ TileLoader(const Matrix& matrix, const void* start, int64_t outer,
                                        int64_t outers, int k)
      : start_(static_cast<const T*>(start)), ld_(matrix.ld) {
    const int line_of_tile = static_cast<int>(threadIdx.x) / kLineChunks;
    const int chunk = static_cast<int>(threadIdx.x) % kLineChunks;
    to_ = Tile::offset(line_of_tile, chunk);
    line_ = kPaired ? line_of_operand(line_of_tile) : line_of_tile;
    along_ = chunk * kChunk;
    const int64_t left = outers - outer;
    outers_left_ = left < Tile::kOuter ? static_cast<int>(left) : Tile::kOuter;
    const int64_t line = Tile::kAlongK ? outer + line_ : int64_t{k} + line_;
    const int64_t first = Tile::kAlongK ? int64_t{k} + along_ : outer + along_;
    from_ = static_cast<const T*>(matrix.data) + line * ld_ + first;
  }

  // Issues the copies of the next kDepth elements of k, of which `k_left` are inside the matrix.
  __device__ __forceinline__ void load(T* tile, int k_left) {
    const T* from = from_;
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      const int line = line_ + i * kOwnStep;
      const bool inside = line < (Tile::kAlongK ? outers_left_ : k_left);
      const int left = inside ? (Tile::kAlongK ? k_left : outers_left_) - along_ : 0;
      const int count = left < 0 ? 0 : left > kChunk ? kChunk : left;
      // cp.async needs a readable address even if it reads 0 bytes.
      cp_async_part<16>(tile + to_ + i * kLineStep * kLineChunks * kChunk,
                        count > 0 ? from : start_, count * static_cast<int>(sizeof(T)));
      from += kOwnStep * ld_;
    }
    from_ += Tile::kAlongK ? Tile::kDepth : Tile::kDepth * ld_;
  }

 private:
  const T* from_;   // the thread's first chunk in the next stage
  const T* start_;  // start of a matrix: a readable address
  int64_t ld_;
  int line_, along_;  // line of the thread's first chunk, and the chunk's first element
  int to_;            // offset of the thread's first chunk in a tile
  int outers_left_;
};

}  // namespace shale::kernels::SHALE_BACKEND
