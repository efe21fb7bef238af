#pragma once

#include <type_traits>

#include "shale/kernels/cuda/gemm/gemm_epilogue.cuh"
#include "shale/kernels/cuda/gemm/gemm_product.cuh"

namespace shale::kernels::SHALE_BACKEND {

// How tiles are shared (GemmPlan::shares), and the memory through which the shares of a tile are
// added.
struct TileShares {
  int count = 0, tiles = 0;     // number of shares; number of shared tiles (or clusters of tiles)
  float* parts = nullptr;       // memory of PartSums
  uint32_t* written = nullptr;  // BlockCounters::written, or similar memory
};

// How a launch runs a GemmProblem.
struct GemmWork {
  GemmTile tile = GemmTile::k64x64;
  // elements of k per part, a multiple of a stage's; part i writes rows from i * m on
  int64_t split_k = 0;
  int64_t splits = 1;
  int cluster = 1;  // as in GemmPlan
  TileShares shares{};
  bool packs = false;            // c, bias, aux and residual, and their lines, are 16-byte aligned
  float* column_sums = nullptr;  // [tile rows, n] of c as stored, or null
};

// Launch the kernel for a and b of the dtype in the function's name. a, b and b_up, and their
// lines, must be 16-byte aligned.
void launch_gemm_bf16(const Exec& exec, const GemmProblem& p, const GemmWork& work);
void launch_gemm_f16(const Exec& exec, const GemmProblem& p, const GemmWork& work);
void launch_gemm_f32(const Exec& exec, const GemmProblem& p, const GemmWork& work);
void launch_gemm_tf32(const Exec& exec, const GemmProblem& p, const GemmWork& work);

// ---- The kernel; each instantiation is in a separate file ----

struct TileIndex {
  int row, col;
};

// Blocks that run at the same time should find their operands in the L2 cache. The blocks form
// bands of 8 tile rows, so that about 250 blocks read 8 row strips of a and some 30 of b.
__device__ __forceinline__ TileIndex tile_of_block(int block, int rows, int cols) {
  constexpr int kBand = 8;
  const int band = block / (kBand * cols), in_band = block % (kBand * cols);
  const int first = band * kBand;
  const int height = rows - first < kBand ? rows - first : kBand;
  return {first + in_band % height, in_band / height};
}

template <typename T, class Config, class ATile, class BTile>
using ProductOf = std::conditional_t<
    Config::kTf32, Tf32Product<Config, ATile, BTile>,
    std::conditional_t<std::is_same_v<T, float>, FmaProduct<Config, ATile, BTile>,
                       TensorProduct<Config, ATile, BTile>>>;

// Row stride of the tile of sums: 8 floats more than a row, so that the 8 rows that a warp writes
// at a time start in different banks.
template <class Config>
constexpr int sums_ld() {
  return Config::kCols + 8;
}

// Minimum resident blocks per multiprocessor. With kPaired a thread copies from b or b_up and keeps
// more addresses, so three blocks would not have enough registers.
template <class Config, bool kPaired>
inline constexpr int kResident = !kPaired || Config::kBlocks < 2 ? Config::kBlocks : 2;

// A block's work: a tile of c, for a part of k.
struct GemmPart {
  int64_t row = 0, row_end = 0;  // row: first row of the tile; row_end: one past its last valid row
  int64_t col = 0;
  int64_t a_row = 0, c_row = 0;  // first row of the tile in a and in c
  int64_t b_offset = 0;          // offset in elements of the group's b and b_up
  int k_begin = 0, k_end = 0;
  float* column_sums = nullptr;  // [n]: output for this tile row's column sums; or null
};

// Computes the sums of a block's tile over `stages` stages of kDepth of k. load(stage) copies a
// stage to shared memory, a's part and then b's. Returns the sums, [kRows, sums_ld()], which all
// threads may read.
//
// Stages form a ring of kStages: while one is multiplied, the next kStages - 1 are being loaded.
// With two sets of fragments, those of the next step are loaded while this one is multiplied, also
// across stages. Shared memory holds the ring and, after the last stage, the tile of sums, from
// which c is written in lines.
template <typename T, class Config, class ATile, class BTile, class Load>
__device__ __forceinline__ float* multiply_stages(int stages, const Load& load) {
  using Product = ProductOf<T, Config, ATile, BTile>;
  constexpr int kStageElements = ATile::kElements + BTile::kElements;
  constexpr int kStages = Config::kStages, kSteps = Config::kDepth / Product::kStep;
  constexpr int kSets = Product::kSets;
  static_assert(kSteps % kSets == 0, "the fragments of a stage's first step are the first set");
  T* const ring = dynamic_shared<T>();
  int loaded = 0;
  const auto load_stage = [&] {
    if (loaded < stages) load(ring + loaded % kStages * kStageElements);
    ++loaded;
    cp_async_commit();  // commits a group even without a load, because waits count groups
  };

  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  Product product(warp / Config::kWarpsAcross * Config::kWarpRows,
                  warp % Config::kWarpsAcross * Config::kWarpCols);
  typename Product::Fragments fragments[kSets];
  const auto load_fragments = [&](int set, int stage, int step) {
    const T* const a = ring + stage % kStages * kStageElements;
    product.load(fragments[set], a, a + ATile::kElements, step);
  };
  // Makes the next stage readable, and frees the previous one, which all threads have read.
  const auto next_stage = [&] {
    cp_async_wait<kStages - 2>();
    __syncthreads();
  };

#pragma unroll
  for (int i = 0; i < kStages - 1; ++i) load_stage();
  next_stage();
  if (kSets == 2 && stages > 0) load_fragments(0, 0, 0);
  for (int stage = 0; stage < stages; ++stage) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      if (kSets == 1) {
        load_fragments(0, stage, step);
      } else if (step < kSteps - 1) {
        load_fragments((step + 1) % kSets, stage, step + 1);
      } else {
        next_stage();
        if (stage + 1 < stages) load_fragments(0, stage + 1, 0);
      }
      if (step == 0) load_stage();
      product.multiply(fragments[step % kSets]);
    }
    if (kSets == 1) next_stage();
  }

  float* const sums = dynamic_shared<float>();
  cp_async_wait<0>();
  __syncthreads();
  product.store(sums, sums_ld<Config>());
  __syncthreads();
  return sums;
}

// With kPaired, c is the SwiGLU of two GEMMs and has half as many columns as the tile.
// part_of(block) is called twice, because keeping its result for the epilogue would cost registers.
template <typename T, class Config, bool kATransposed, bool kBTransposed, bool kPaired,
          class PartOf>
__device__ __forceinline__ void multiply_part(const GemmProblem& p, bool packs,
                                              const PartOf& part_of) {
  using ATile = OperandTile<T, Config::kRows, Config::kDepth, !kATransposed>;
  using BTile = OperandTile<T, Config::kCols, Config::kDepth, kBTransposed>;
  constexpr int kOutCols = kPaired ? Config::kCols / 2 : Config::kCols;
  const GemmPart part = part_of(static_cast<int>(blockIdx.x));
  int k_left = part.k_end - part.k_begin;
  const int stages = (k_left + Config::kDepth - 1) / Config::kDepth;

  using BLoader = TileLoader<BTile, Config::kThreads, kPaired>;
  TileLoader<ATile, Config::kThreads> a_loader(
      p.a, p.a.data, part.a_row, part.a_row + (part.row_end - part.row), part.k_begin);
  Matrix b = p.b;
  if (BLoader::loads_up()) b.data = p.b_up.data, b.ld = p.b_up.ld;
  b.data = static_cast<T*>(b.data) + part.b_offset;
  BLoader b_loader(b, p.b.data, part.col, p.n, part.k_begin);
  float* const sums = multiply_stages<T, Config, ATile, BTile>(stages, [&](T* stage) {
    a_loader.load(stage, k_left);
    b_loader.load(stage + ATile::kElements, k_left);
    k_left -= Config::kDepth;
  });
  const GemmPart again = part_of(opaque(static_cast<int>(blockIdx.x)));
  const EpilogueTile tile = {.row = again.row,
                             .row_end = again.row_end,
                             .col = again.col,
                             .c_row = again.c_row,
                             .packs = packs,
                             .column_sums = again.column_sums};
  constexpr int kLd = sums_ld<Config>();
  const auto sums_run = [&](int r, int c) {
    const auto run = [&](int at) { return load_run(sums + r * kLd + at, kRun, true); };
    if constexpr (kPaired) {
      return RunPair{run(paired_line(c, false)), run(paired_line(c, true))};
    } else {
      return run(c);
    }
  };
  if (p.c.dtype == DType::kF32) {
    epilogue_tile<T, float, Config::kRows, kOutCols, Config::kThreads>(p, tile, sums, sums_run);
  } else {
    epilogue_tile<T, T, Config::kRows, kOutCols, Config::kThreads>(p, tile, sums, sums_run);
  }
}

// Kernel with one block per tile of c and part of k.
template <typename T, class Config, bool kATransposed, bool kBTransposed, bool kPaired>
__global__ void __launch_bounds__(Config::kThreads, (kResident<Config, kPaired>))
    gemm_kernel(const GemmProblem p, const GemmWork work, int row_tiles, int col_tiles) {
  await_previous_grid();
  multiply_part<T, Config, kATransposed, kBTransposed, kPaired>(p, work.packs, [&](int block) {
    const TileIndex index = tile_of_block(block, row_tiles, col_tiles);
    constexpr int kOutCols = kPaired ? Config::kCols / 2 : Config::kCols;
    const int64_t row = int64_t{index.row} * Config::kRows;
    const int number = static_cast<int>(blockIdx.z);
    const int64_t begin = number * work.split_k, end = begin + work.split_k;
    return GemmPart{
        .row = row,
        .row_end = p.m,
        .col = int64_t{index.col} * kOutCols,
        .a_row = row,
        .c_row = number * p.m + row,
        .k_begin = static_cast<int>(begin),
        .k_end = static_cast<int>(end < p.k ? end : p.k),
        .column_sums = work.column_sums == nullptr ? nullptr : work.column_sums + index.row * p.n};
  });
}

template <class Config, typename T>
constexpr size_t gemm_shared_bytes() {
  constexpr size_t kRing =
      size_t{Config::kStages} * Config::kDepth * (Config::kRows + Config::kCols) * sizeof(T);
  constexpr size_t kSums = size_t{Config::kRows} * sums_ld<Config>() * sizeof(float);
  return kRing > kSums ? kRing : kSums;
}

template <typename T, class Config, bool kATransposed, bool kBTransposed, bool kPaired = false>
void launch_gemm_kernel(const Exec& exec, const GemmProblem& p, const GemmWork& work) {
  constexpr int kOutCols = kPaired ? Config::kCols / 2 : Config::kCols;
  const int64_t row_tiles = ceil_div(p.m, Config::kRows), col_tiles = ceil_div(p.n, kOutCols);
  simt::launch(gemm_kernel<T, Config, kATransposed, kBTransposed, kPaired>,
               {.grid = {row_tiles * col_tiles, 1, work.splits},
                .block = Config::kThreads,
                .smem_bytes = gemm_shared_bytes<Config, T>()},
               exec, p, work, static_cast<int>(row_tiles), static_cast<int>(col_tiles));
}

template <typename T, GemmTile kTile, class Config = GemmConfig<T, kTile>>
void launch_tile(const Exec& exec, const GemmProblem& p, const GemmWork& work) {
  static_assert(gemm_shared_bytes<Config, T>() <= shared_bytes_of(kTile));
  if (p.epilogue == Epilogue::kSwiGlu) {  // weights are row-major, see GemmArgs
    return launch_gemm_kernel<T, Config, false, true, true>(exec, p, work);
  }
  if (p.a.transposed && p.b.transposed) {
    if constexpr (kTile == GemmTile::k64x64) {  // has_kernel() excludes other tiles
      return launch_gemm_kernel<T, Config, true, true>(exec, p, work);
    }
  } else if (p.a.transposed) {
    return launch_gemm_kernel<T, Config, true, false>(exec, p, work);
  } else if (p.b.transposed) {
    return launch_gemm_kernel<T, Config, false, true>(exec, p, work);
  } else {
    return launch_gemm_kernel<T, Config, false, false>(exec, p, work);
  }
  throw InternalError("gemm: no kernel with this tile takes two transposed operands");
}

}  // namespace shale::kernels::SHALE_BACKEND
