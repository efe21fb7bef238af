#pragma once

#include "shale/kernels/cuda/gemm/gemm90_config.cuh"
#include "shale/kernels/cuda/gemm/gemm_epilogue.cuh"

namespace shale::kernels::SHALE_BACKEND {

// Epilogue of a warpgroup. There are two ways to store a slab.
//
// store_boxes(): for most 16-bit results, a thread only needs the values that it has itself. It
// packs them into boxes of 64 columns, 8 KiB, which TMA stores to c while the next boxes are
// packed.
//
// store_slab(): all other results go through 8 KiB of shared memory, 32 columns at a time. This
// rearranges wgmma's layout into runs of 8 columns, on which the epilogue of all GEMM kernels
// works. A thread has the same run of columns in two rows. 16-bit results then go to a box; f32
// results, and those with unaligned lines, go directly to memory. If a tile's columns alternate
// between SwiGLU's GEMMs, the 32 columns are 16 of each GEMM, and a thread has the same run of both
// GEMMs in one row.

struct Slab {
  int number;          // index of the slab in its tile
  int barrier;         // named barrier of the slab's warpgroup
  unsigned char* box;  // shared memory of the slab, 1024-byte aligned
  float* sums;         // follows `box` in memory, with the same size
};

// A tile is stored in parts. These are the columns of a part, and its number of runs of kRun
// columns.
inline constexpr int kPartCols = 32, kPartRuns = kPartCols / kRun;
inline constexpr int kBoxCols = 64;
inline constexpr int kRowsAtOnce = kWarpgroupSize / kPartRuns;

// Returns the position of a run of sums in shared memory. Runs are permuted by the row, so that
// neither the 4 rows that half a warp writes at a time nor the runs that it reads have bank
// conflicts.
__device__ __forceinline__ int sums_run(int row, int run) {
  return row * kPartCols + (run ^ row % kPartRuns) * kRun;
}

// Returns the position of a run of 16-bit results in the box: lines of 128 bytes with swizzled
// 16-byte chunks.
__device__ __forceinline__ int box_run(int row, int run) {
  return row * 128 + (run ^ row % 8) * 16;
}

// Stores a thread's accumulators of one part to shared memory: two columns of each of its 4 blocks
// of 8 columns, see kernels/simt/wgmma.h. Registers cannot be indexed, so each part has its own
// code.
template <int kCount>
__device__ __forceinline__ void store_sums(float* to, const float (&sums)[kCount], int part) {
  const int thread = static_cast<int>(threadIdx.x) % kWarpgroupSize, lane = thread % kWarpSize;
  const int row = thread / kWarpSize * 16 + lane / 4, pair = lane % 4 * 2;
#pragma unroll
  for (int own = 0; own < 2 * kCount / kPartCols; ++own) {
    if (own != part) continue;
#pragma unroll
    for (int j = 0; j < kPartRuns; ++j) {
      const int i = own * (kPartCols / 2) + 4 * j;
      store_shared_floats(to + sums_run(row, j) + pair, Floats<2>{sums[i], sums[i + 1]});
      store_shared_floats(to + sums_run(row + 8, j) + pair, Floats<2>{sums[i + 2], sums[i + 3]});
    }
  }
}

// Computes column sums over the slab's 64 rows: first over each thread's rows, then over threads in
// row order. `cols` columns are inside c.
__device__ __forceinline__ void add_columns(const Run& sums, float* scratch, float* column_sums,
                                            int cols, int barrier) {
  const int thread = static_cast<int>(threadIdx.x) % kWarpgroupSize;
  barrier_sync(barrier, kWarpgroupSize);  // all threads have read the sums in this memory
#pragma unroll
  for (int i = 0; i < kRun; ++i) {
    scratch[thread / kPartRuns * kPartCols + thread % kPartRuns * kRun + i] = sums.at[i];
  }
  barrier_sync(barrier, kWarpgroupSize);
  if (thread < kPartCols && thread < cols) {
    float sum = 0;
    for (int row = 0; row < kRowsAtOnce; ++row) sum += scratch[row * kPartCols + thread];
    column_sums[thread] = sum;
  }
}

// Columns of c that a part of a tile gives, and their number of runs.
template <class Config>
inline constexpr int kPartOutCols = Config::kPaired ? kPartCols / 2 : kPartCols;
template <class Config>
inline constexpr int kPartOutRuns = kPartOutCols<Config> / kRun;

template <class Config>
__device__ __forceinline__ auto load_sums(const float* sums, int row, int run) {
  const auto load = [&](int at) { return load_run(sums + sums_run(row, at), kRun, true); };
  if constexpr (Config::kPaired) {
    return RunPair{load(run), load(run + kPartRuns / 2)};
  } else {
    return load(run);
  }
}

// Stores part number `part` of a tile: 32 of its columns.
template <typename T, typename TOut, class Config, bool kByBoxes>
__device__ __forceinline__ void store_part(const Gemm90Params& params, const Gemm90Item& item,
                                           const Slab& slab, int part,
                                           const float (&sums)[Config::kCols / 2]) {
  constexpr int kCols = kPartOutCols<Config>, kRuns = kPartOutRuns<Config>;
  const GemmProblem& p = params.problem;
  const int thread = static_cast<int>(threadIdx.x) % kWarpgroupSize, barrier = slab.barrier;
  // Sizes fit 32 bits, see gemm_by_plan(). 32-bit integers save registers.
  const int in_box = part * kCols % kBoxCols;
  const int col = item.col + part * kCols, cols_left = static_cast<int>(p.n) - col;
  const int row = item.row + slab.number * kGemm90SlabRows;
  const int rows_left = item.row_end - row;

  // Waits until TMA has read the previous boxes.
  if (in_box == 0 && thread == 0) bulk_wait_read<0>();
  barrier_sync(barrier, kWarpgroupSize);  // all threads have read the previous sums
  store_sums(slab.sums, sums, part);
  barrier_sync(barrier, kWarpgroupSize);

  const int run = thread % kRuns;
  const RunEpilogue<T, TOut> epilogue(p, col + run * kRun, params.work.packs);
  const bool sums_columns = !Config::kPaired && params.work.column_sums != nullptr;
  Run column_sums{};
#pragma unroll 1  // no unrolling: it would need the registers that hold the sums
  for (int r = thread / kRuns; r < kGemm90SlabRows; r += kWarpgroupSize / kRuns) {
    const bool inside = r < rows_left && run * kRun < cols_left;
    const auto products = load_sums<Config>(slab.sums, r, run);
    Run result{};
    if (inside) result = epilogue.result(products, row + r);
    if constexpr (kByBoxes) {
      unsigned char* const to = slab.box + box_run(r, in_box / kRun + run);
      store_shared_floats(reinterpret_cast<TOut*>(to), result);
    }
    if (!inside) continue;
    if constexpr (!kByBoxes) epilogue.store(result, row + r);
    if (!sums_columns) continue;
    result = rounded_to<TOut>(result);
#pragma unroll
    for (int e = 0; e < kRun; ++e) column_sums.at[e] += result.at[e];
  }
  if (sums_columns && rows_left > 0) {
    add_columns(column_sums, slab.sums, params.work.column_sums + row / kGemm90SlabRows * p.n + col,
                cols_left, barrier);
  }
  if (!kByBoxes || in_box + kCols < kBoxCols) return;
  fence_proxy_async();
  barrier_sync(barrier, kWarpgroupSize);
  if (thread > 0 || rows_left <= 0) return;
  tma_store(params.c, slab.box, col - in_box, row);
  bulk_commit();
}

template <typename T, typename TOut, class Config, bool kByBoxes>
__device__ __forceinline__ void store_slab(const Gemm90Params& params, const Gemm90Item& item,
                                           const Slab& slab,
                                           const float (&sums)[Config::kCols / 2]) {
  constexpr int kCols = kPartOutCols<Config>;
#pragma unroll 1  // no unrolling: it would repeat the epilogue's code
  for (int part = 0; part < Config::kCols / kPartCols; ++part) {
    // The condition is the same for all threads. If a box has a column inside c, all its parts are
    // stored.
    if (item.col + part * kCols / kBoxCols * kBoxCols >= params.problem.n) return;
    store_part<T, TOut, Config, kByBoxes>(params, item, slab, part, sums);
  }
}

// ---- Stores directly from registers ----

// Fills a warpgroup's two boxes alternately: TMA stores one while the other is filled.
template <typename T>
class BoxWriter {
 public:
  // `row`: first row of the slab. `inside`: at least one row of the slab is inside c.
  __device__ __forceinline__ BoxWriter(const Slab& slab, int row, bool inside)
      : slab_(slab), row_(row), inside_(inside) {
    if (thread() == 0) bulk_wait_read<0>();
  }

  // Stores a box; its first column is column `col` of the map's matrix. values(j, half) returns the
  // thread's two values in columns 8 j to 8 j + 7 of the box. In wgmma's layout a thread has two
  // rows; half 0 is the upper one, half 1 the lower one.
  template <class Values>
  __device__ __forceinline__ void put(const TensorMap& map, int col, const Values& values) {
    unsigned char* const box = second_ ? reinterpret_cast<unsigned char*>(slab_.sums) : slab_.box;
    second_ = !second_;
    if (thread() == 0) bulk_wait_read<1>();
    barrier_sync(slab_.barrier, kWarpgroupSize);  // TMA has read this box
    const int lane = thread() % kWarpSize;
    // the row whose address this lane passes
    const int line = thread() / kWarpSize * 16 + lane % 16;
#pragma unroll
    for (int j = 0; j < kBoxCols / kRun; j += 2) {
      uint32_t pairs[4];
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const Floats<2> pair = values(j + e / 2, e % 2);
        pairs[e] = pack_pair<T>(pair.at[0], pair.at[1]);
      }
      stmatrix_x4(box + box_run(line, j + lane / 16), pairs);
    }
    fence_proxy_async();
    barrier_sync(slab_.barrier, kWarpgroupSize);
    if (thread() > 0 || !inside_) return;
    tma_store(map, box, col, row_);
    bulk_commit();
  }

 private:
  static __device__ __forceinline__ int thread() {
    return static_cast<int>(threadIdx.x) % kWarpgroupSize;
  }

  const Slab& slab_;
  int row_;
  bool inside_, second_ = false;
};

// Returns the biases of columns `col` and col + 1, or 0 beyond the last column.
template <typename T>
__device__ __forceinline__ Floats<2> bias_pair(const GemmProblem& p, int col) {
  const T* const bias = static_cast<const T*>(p.bias.data) + col;
  if (col + 1 < p.n) return load_floats<2>(bias);
  return {col < p.n ? to_float(*bias) : 0.f, 0.f};
}

// Stores a slab whose epilogue is at most a bias, or SwiGLU, see Gemm90Params::unchanged.
template <typename T, class Config>
__device__ __forceinline__ void store_boxes(const Gemm90Params& params, const Gemm90Item& item,
                                            const Slab& slab,
                                            const float (&sums)[Config::kCols / 2]) {
  const GemmProblem& p = params.problem;
  const int row = item.row + slab.number * kGemm90SlabRows;
  BoxWriter<T> writer(slab, row, row < item.row_end);
#pragma unroll
  for (int first = 0; first < Config::kOutCols; first += kBoxCols) {
    const int col = item.col + first;
    if (col >= p.n) break;
    // Returns the thread's pair of values in a block of 8 columns of the tile.
    const auto pair_of = [&](int block, int half) {
      return Floats<2>{sums[4 * block + 2 * half], sums[4 * block + 2 * half + 1]};
    };
    if constexpr (Config::kPaired) {
      // The first 16 of 32 columns of the tile belong to the gate, the last 16 to up.
      const auto gate = [&](int j, int half) {
        const int block = first / kRun + j;
        return pair_of(block / 2 * 4 + block % 2, half);
      };
      const auto up = [&](int j, int half) {
        const int block = first / kRun + j;
        return pair_of(block / 2 * 4 + block % 2 + 2, half);
      };
      writer.put(params.aux, col, gate);
      writer.put(params.aux_up, col, up);
      writer.put(params.c, col, [&](int j, int half) {
        const Floats<2> g = to_floats(from_floats<T>(gate(j, half)));
        const Floats<2> u = to_floats(from_floats<T>(up(j, half)));
        return Floats<2>{silu(g.at[0]) * u.at[0], silu(g.at[1]) * u.at[1]};
      });
    } else {
      const auto product = [&](int j, int half) { return pair_of(first / kRun + j, half); };
      if (p.bias.data == nullptr) {
        writer.put(params.c, col, product);
        continue;
      }
      writer.put(params.c, col, [&](int j, int half) {
        const int own = static_cast<int>(threadIdx.x) % 4 * 2;
        const Floats<2> bias = bias_pair<T>(p, col + j * kRun + own), c = product(j, half);
        return Floats<2>{c.at[0] + bias.at[0], c.at[1] + bias.at[1]};
      });
    }
  }
}

// Stores a slab to c with store_boxes() or store_slab().
template <typename T, class Config, class Params>
__device__ __forceinline__ void store_products(const Params& params, const Gemm90Item& item,
                                               const Slab& slab,
                                               const float (&sums)[Config::kCols / 2]) {
  const bool by_boxes = params.by_boxes && may_go_by_boxes(params, item, slab.number);
  if (by_boxes && (Config::kPaired || params.unchanged)) {
    store_boxes<T, Config>(params, item, slab, sums);
  } else if (!Config::kPaired && by_boxes) {
    store_slab<T, T, Config, true>(params, item, slab, sums);
  } else if (params.problem.c.dtype == DType::kF32) {
    store_slab<T, float, Config, false>(params, item, slab, sums);
  } else {
    store_slab<T, T, Config, false>(params, item, slab, sums);
  }
}

}  // namespace shale::kernels::SHALE_BACKEND
