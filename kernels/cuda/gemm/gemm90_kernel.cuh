#pragma once

#include "shale/kernels/cuda/gemm/gemm90_epilogue.cuh"
#include "shale/kernels/cuda/grid.h"

namespace shale::kernels::SHALE_BACKEND {

// The items of a block.
__device__ __forceinline__ int first_item() {
  return static_cast<int>(blockIdx.x);
}
__device__ __forceinline__ int blocks() {
  return static_cast<int>(gridDim.x);
}

// ---- The thread that loads ----

// An operand's part of a stage. Where lines lie along k, they are rows of a (columns of b), and one
// box holds all of them; else a line is one k, 64 rows long, and a box holds 64 rows.
// `group`: the map's third coordinate, if it has one.
template <class Config, int kOuter, bool kAlongK, typename... Group>
__device__ __forceinline__ void load_operand(unsigned char* to, const TensorMap& map,
                                             MBarrier& full, int outer, int k, Group... group) {
  if constexpr (kAlongK) {
    tma_load(to, map, full, k, outer, group...);
  } else {
#pragma unroll
    for (int i = 0; i < kOuter / 64; ++i) {
      tma_load(to + i * Config::kBox, map, full, outer + 64 * i, k, group...);
    }
  }
}

// A tile of two operands, whose columns take turns.
template <class Config, typename... Group>
__device__ __forceinline__ void load_pairs(unsigned char* to, const TensorMap& b,
                                           const TensorMap& b_up, MBarrier& full, int col, int k,
                                           Group... group) {
  constexpr int kBytes = kPairCols * 128;
#pragma unroll
  for (int i = 0; i < Config::kOutCols / kPairCols; ++i) {
    tma_load(to + 2 * i * kBytes, b, full, k, col + i * kPairCols, group...);
    tma_load(to + (2 * i + 1) * kBytes, b_up, full, k, col + i * kPairCols, group...);
  }
}

template <class Config, bool kATransposed, bool kBTransposed, class Params>
__device__ __forceinline__ void load_stages(const Params& params, unsigned char* ring,
                                            Gemm90Barriers<Config::kStages>& barriers) {
  RingPlace<Config::kStages> place;
  const int items = gemm90_items(params);
  for (int number = first_item(); number < items; number += blocks()) {
    const Gemm90Item item = gemm90_item<Config>(params, number);
    for (int k = item.k_begin; k < item.k_end; k += Config::kDepth, place.next()) {
      unsigned char* const stage = ring + place.stage * Config::kStage;
      MBarrier& full = barriers.full[place.stage];
      mbarrier_wait(barriers.empty[place.stage], place.parity ^ 1);
      mbarrier_arrive_expect(full, Config::kStage);
      load_operand<Config, Config::kRows, !kATransposed>(stage, params.a, full, item.a_row, k);
      const auto load_b = [&](auto... group) {
        if constexpr (Config::kPaired) {
          load_pairs<Config>(stage + Config::kA, params.b, params.b_up, full, item.col, k,
                             group...);
        } else {
          load_operand<Config, Config::kCols, kBTransposed>(stage + Config::kA, params.b, full,
                                                            item.col, k, group...);
        }
      };
      if constexpr (Params::kGroupsOfB) {
        load_b(item.group);
      } else {
        load_b();
      }
    }
  }
}

// ---- The warpgroups that multiply ----

// Issues the product of 16 of k, from `k` of the stage on.
template <typename T, class Config, bool kATransposed, bool kBTransposed>
__device__ __forceinline__ void multiply_step(float (&sums)[Config::kCols / 2],
                                              const unsigned char* a, const unsigned char* b, int k,
                                              bool accumulate) {
  const auto with_b = [&](auto b_tile) {
    if constexpr (kATransposed) {
      wgmma<T, Config::kCols>(sums, mn_major(a, k, Config::kBox), b_tile, accumulate);
    } else {
      wgmma<T, Config::kCols>(sums, k_major(a, k), b_tile, accumulate);
    }
  };
  if constexpr (kBTransposed) {
    with_b(k_major(b, k));
  } else {
    with_b(mn_major(b, k, Config::kBox));
  }
}

// c [64, kCols] of slab `slab`. While the products of one stage run, those of the next are issued;
// a stage is free when the products that follow it have been.
template <typename T, class Config, bool kATransposed, bool kBTransposed>
__device__ __forceinline__ void multiply_stages(float (&sums)[Config::kCols / 2], int slab,
                                                int stages, const unsigned char* ring,
                                                Gemm90Barriers<Config::kStages>& barriers,
                                                RingPlace<Config::kStages>& place) {
  constexpr int kSteps = Config::kDepth / 16;
  const bool leads_warp = threadIdx.x % kWarpSize == 0;
  int before = 0;  // the stage of the products that are under way
  for (int i = 0; i < stages; ++i, place.next()) {
    const unsigned char* const a = ring + place.stage * Config::kStage + slab * Config::kBox;
    const unsigned char* const b = ring + place.stage * Config::kStage + Config::kA;
    mbarrier_wait(barriers.full[place.stage], place.parity);
    wgmma_fence(sums);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      multiply_step<T, Config, kATransposed, kBTransposed>(sums, a, b, 16 * step,
                                                           i > 0 || step > 0);
    }
    wgmma_commit();
    if (i > 0) {
      wgmma_wait<1>(sums);
      if (leads_warp) mbarrier_arrive(barriers.empty[before]);
    }
    before = place.stage;
  }
  wgmma_wait<0>(sums);
  if (leads_warp) mbarrier_arrive(barriers.empty[before]);
}

// The last stage of a group of k, of which `steps` times 16 belong to it.
template <typename T, class Config, bool kATransposed, bool kBTransposed>
__device__ __forceinline__ void multiply_rest(float (&sums)[Config::kCols / 2], int slab, int steps,
                                              bool accumulate, const unsigned char* ring,
                                              Gemm90Barriers<Config::kStages>& barriers,
                                              RingPlace<Config::kStages>& place) {
  const unsigned char* const a = ring + place.stage * Config::kStage + slab * Config::kBox;
  const unsigned char* const b = ring + place.stage * Config::kStage + Config::kA;
  mbarrier_wait(barriers.full[place.stage], place.parity);
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    wgmma_fence(sums);
    multiply_step<T, Config, kATransposed, kBTransposed>(sums, a, b, 16 * step,
                                                         accumulate || step > 0);
    wgmma_commit();
    wgmma_wait<0>(sums);
  }
  if (threadIdx.x % kWarpSize == 0) mbarrier_arrive(barriers.empty[place.stage]);
  place.next();
}

// c of slab `slab`, of a group of k whose size is a multiple of 16, and may be 0.
template <typename T, class Config, bool kATransposed, bool kBTransposed>
__device__ __forceinline__ void multiply_group(float (&sums)[Config::kCols / 2], int slab, int size,
                                               const unsigned char* ring,
                                               Gemm90Barriers<Config::kStages>& barriers,
                                               RingPlace<Config::kStages>& place) {
  const int stages = size / Config::kDepth, rest = size % Config::kDepth;
  if (stages > 0) {
    multiply_stages<T, Config, kATransposed, kBTransposed>(sums, slab, stages, ring, barriers,
                                                           place);
  } else {
#pragma unroll
    for (float& sum : sums) sum = 0;
  }
  if (rest == 0) return;
  multiply_rest<T, Config, kATransposed, kBTransposed>(sums, slab, rest / 16, stages > 0, ring,
                                                       barriers, place);
}

// ---- The kernel ----

// What a block does before its warpgroups part.
template <class Config, class Params>
__device__ __forceinline__ void prepare_block(const Params& params,
                                              Gemm90Barriers<Config::kStages>& barriers) {
  if (threadIdx.x == 0) {
    prefetch_tensor_map(params.a);
    prefetch_tensor_map(params.b);
    if (Config::kPaired) prefetch_tensor_map(params.b_up);
    if (params.by_boxes) prefetch_tensor_map(params.c);
    for (int i = 0; i < Config::kStages; ++i) {
      mbarrier_init(barriers.full[i], 1);
      mbarrier_init(barriers.empty[i], Config::kSlabs * kWarpgroupSize / kWarpSize);
    }
    fence_mbarrier_init();
  }
  __syncthreads();
  await_previous_grid();
}

// Blocks, as many as there are multiprocessors, take tiles of c in turns. One warpgroup has one
// thread that copies the operands to a ring of stages, of tile after tile; two have 64 rows of the
// tile each. So the copies for the next tile go on while this one's epilogue does.
template <typename T, class Config, bool kATransposed, bool kBTransposed, class Params>
__global__ void __launch_bounds__(Config::kThreads, 1)
    gemm90_kernel(const __grid_constant__ Params params) {
  unsigned char* const ring = dynamic_shared();
  unsigned char* const staging = ring + Config::kRing;
  auto& barriers = *reinterpret_cast<Gemm90Barriers<Config::kStages>*>(
      staging + Config::kSlabs * Config::kStaging);
  prepare_block<Config>(params, barriers);

  // 504 registers are there for the three threads at one place of their warpgroups.
  const int warpgroup = uniform(static_cast<int>(threadIdx.x) / kWarpgroupSize);
  if (warpgroup == Config::kSlabs) {
    shrink_registers<40>();
    if (threadIdx.x % kWarpgroupSize == 0) {
      load_stages<Config, kATransposed, kBTransposed>(params, ring, barriers);
    }
  } else {
    grow_registers<232>();
    RingPlace<Config::kStages> place;
    float sums[Config::kCols / 2];
    const int items = gemm90_items(params);
    for (int number = first_item(); number < items; number += blocks()) {
      const Gemm90Item item = gemm90_item<Config>(params, number);
      const int size = item.k_end - item.k_begin;
      if constexpr (Params::kGroupsOfK) {
        multiply_group<T, Config, kATransposed, kBTransposed>(sums, warpgroup, size, ring, barriers,
                                                              place);
      } else {
        multiply_stages<T, Config, kATransposed, kBTransposed>(
            sums, warpgroup, (size + Config::kDepth - 1) / Config::kDepth, ring, barriers, place);
      }
      unsigned char* const own = staging + warpgroup * Config::kStaging;
      const Slab slab = {
          .index = warpgroup, .box = own, .sums = reinterpret_cast<float*>(own + Config::kBox)};
      store_products<T, Config>(params, item, slab, sums);
    }
    if (threadIdx.x % kWarpgroupSize == 0) bulk_wait_read<0>();
  }
}

// ---- Host side ----

// A matrix of `lines` lines of `length` elements, in boxes of 64 elements and so many lines.
inline TensorMap operand_map(const Matrix& matrix, int64_t lines, int64_t length,
                             int64_t box_lines) {
  constexpr int64_t kAligned = 8;  // a stride that is never used has to be possible too
  return make_tensor_map(
      {.data = matrix.data,
       .dtype = matrix.dtype,
       .dims = 2,
       .sizes = {length, lines},
       .strides = {1, lines > 1 ? matrix.ld : ceil_div(length, kAligned) * kAligned},
       .box = {64, box_lines}});
}

// How c goes to memory, which has so many rows.
template <class Config>
void set_outputs(Gemm90Params& params, int64_t c_rows) {
  const GemmProblem& p = params.problem;
  params.by_boxes = params.work.packs && p.c.dtype != DType::kF32;  // parts of k are in f32
  if (!params.by_boxes) return;
  params.unchanged = p.epilogue == Epilogue::kNone && p.residual.data == nullptr &&
                     params.work.column_sums == nullptr;
  const auto map = [&](const Matrix& matrix) {
    return operand_map(matrix, c_rows, p.n, kGemm90SlabRows);
  };
  params.c = map(p.c);
  if (Config::kPaired) params.aux = map(p.aux), params.aux_up = map(p.aux_up);
}

template <typename T, class Config, bool kATransposed, bool kBTransposed>
void launch_gemm90_kernel(const Exec& exec, const GemmProblem& p, const GemmWork& work) {
  Gemm90Params params{};
  params.problem = p;
  params.work = work;
  params.a = kATransposed ? operand_map(p.a, p.k, p.m, Config::kDepth)
                          : operand_map(p.a, p.m, p.k, Config::kRows);
  constexpr int kBoxLines = Config::kPaired ? kPairCols : Config::kCols;
  params.b = kBTransposed ? operand_map(p.b, p.n, p.k, kBoxLines)
                          : operand_map(p.b, p.k, p.n, Config::kDepth);
  if (Config::kPaired) params.b_up = operand_map(p.b_up, p.n, p.k, kBoxLines);
  set_outputs<Config>(params, p.m);
  params.row_tiles = static_cast<int>(ceil_div(p.m, Config::kRows));
  params.col_tiles = static_cast<int>(ceil_div(p.n, Config::kOutCols));
  params.items = params.row_tiles * params.col_tiles * static_cast<int>(work.splits);
  simt::launch(gemm90_kernel<T, Config, kATransposed, kBTransposed, Gemm90Params>,
               {.grid = persistent_blocks(exec, params.items),
                .block = Config::kThreads,
                .smem_bytes = gemm90_shared_bytes<Config>()},
               exec, params);
}

template <typename T, class Config>
void launch_gemm90_tile(const Exec& exec, const GemmProblem& p, const GemmWork& work) {
  if (p.a.transposed && p.b.transposed) {  // see has_kernel()
    throw InternalError("gemm: a tile without a kernel for both operands transposed");
  }
  if (p.a.transposed) return launch_gemm90_kernel<T, Config, true, false>(exec, p, work);
  if (p.b.transposed) return launch_gemm90_kernel<T, Config, false, true>(exec, p, work);
  launch_gemm90_kernel<T, Config, false, false>(exec, p, work);
}

// SwiGLU, of weights as they lie (see GemmArgs).
template <typename T>
void launch_gemm90_pairs(const Exec& exec, const GemmProblem& p, const GemmWork& work) {
  switch (work.tile) {
    case GemmTile::kHopper128x128:
      return launch_gemm90_kernel<T, Gemm90Config<128, 6, true>, false, true>(exec, p, work);
    case GemmTile::kHopper128x256:
      return launch_gemm90_kernel<T, Gemm90Config<256, 4, true>, false, true>(exec, p, work);
    default: throw InternalError("gemm: no tile of Hopper's kernels for SwiGLU");
  }
}

template <typename T>
void launch_gemm90(const Exec& exec, const GemmProblem& p, const GemmWork& work) {
  if (p.epilogue == Epilogue::kSwiGlu) return launch_gemm90_pairs<T>(exec, p, work);
  switch (work.tile) {
    case GemmTile::kHopper128x64: return launch_gemm90_tile<T, Gemm90Config<64, 6>>(exec, p, work);
    case GemmTile::kHopper128x128:
      return launch_gemm90_tile<T, Gemm90Config<128, 6>>(exec, p, work);
    case GemmTile::kHopper128x256:
      return launch_gemm90_tile<T, Gemm90Config<256, 4>>(exec, p, work);
    default: throw InternalError("gemm: no tile of Hopper's kernels");
  }
}

}  // namespace shale::kernels::SHALE_BACKEND
