#pragma once

#include "shale/kernels/cuda/gemm/gemm90_epilogue.cuh"
#include "shale/kernels/cuda/gemm/gemm90_shares.cuh"
#include "shale/kernels/cuda/grid.h"
#include "shale/kernels/cuda/turns.cuh"

namespace shale::kernels::SHALE_BACKEND {

// ---- The loading thread ----

// Loads an operand's part of a stage. If the operand's lines run along k, a line is a row of a (a
// column of b), and one box has all lines. Otherwise a line is 64 rows of a (columns of b) at one
// k, and there is a box for every 64 rows. `group`: the map's third coordinate, if it has one.
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

// Loads a stage of a tile whose columns alternate between b and b_up.
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

// Loads this block's part of b for its cluster of 2 blocks, to the same place in both blocks.
template <class Config, bool kAlongK>
__device__ __forceinline__ void load_for_cluster(unsigned char* to, const Gemm90Params& params,
                                                 MBarrier& full, int col, int k) {
  constexpr int kBlocks = 2;
  constexpr unsigned kAll = (1u << kBlocks) - 1;
  const int rank = cluster_rank();
  if constexpr (Config::kPaired) {
    constexpr int kBytes = kPairCols * 128, kPairs = Config::kOutCols / kPairCols / kBlocks;
    col += rank * kPairs * kPairCols;
    to += 2 * rank * kPairs * kBytes;
#pragma unroll
    for (int i = 0; i < kPairs; ++i, col += kPairCols, to += 2 * kBytes) {
      tma_load_multicast(to, params.b, full, kAll, k, col);
      tma_load_multicast(to + kBytes, params.b_up, full, kAll, k, col);
    }
  } else if constexpr (kAlongK) {
    tma_load_multicast(to + rank * (Config::kB / kBlocks), params.b, full, kAll, k,
                       col + rank * (Config::kCols / kBlocks));
  } else {
    constexpr int kBoxes = Config::kCols / 64 / kBlocks;
#pragma unroll
    for (int i = 0; i < kBoxes; ++i) {
      const int box = rank * kBoxes + i;
      tma_load_multicast(to + box * Config::kBox, params.b, full, kAll, col + 64 * box, k);
    }
  }
}

template <class Config, bool kATransposed, bool kBTransposed, class Params>
__device__ __forceinline__ void load_item(const Params& params, const Gemm90Item& item,
                                          unsigned char* ring,
                                          Gemm90Barriers<Config::kStages>& barriers,
                                          RingPlace<Config::kStages>& place) {
  for (int k = item.k_begin; k < item.k_end; k += Config::kDepth, place.next()) {
    unsigned char* const stage = ring + place.stage * Config::kStage;
    MBarrier& full = barriers.full[place.stage];
    mbarrier_wait(barriers.empty[place.stage], place.parity ^ 1);
    mbarrier_arrive_expect(full, Config::kStage);
    load_operand<Config, Config::kRows, !kATransposed>(stage, params.a, full, item.a_row, k);
    if constexpr (Params::kClusters && Config::kClusters) {
      if (params.cluster > 1) {
        load_for_cluster<Config, kBTransposed>(stage + Config::kA, params, full, item.col, k);
        continue;
      }
    }
    const auto load_b = [&](auto... group) {
      if constexpr (Config::kPaired) {
        load_pairs<Config>(stage + Config::kA, params.b, params.b_up, full, item.col, k, group...);
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

// Takes items for the block or its cluster. load(item, place) copies the operands of one item. The
// next item is requested before the copies of this one, to hide the latency.
template <class Config, class Params, class Load>
__device__ __forceinline__ void load_items(const Params& params,
                                           Gemm90Barriers<Config::kStages>& barriers,
                                           const Load& load) {
  RingPlace<Config::kStages> place;
  const int cluster = Params::kClusters ? params.cluster : 1;
  TileGiver giver(barriers.items, cluster);
  const int items = gemm90_items(params);
  const auto load_all = [&](int number) {
    ItemPieces<Config, Params> pieces(params, number);
    do load(pieces.piece(), place);
    while (pieces.next());
  };
  if (cluster > 1 && cluster_rank() > 0) {
    for (int number = giver.follow(); number < items; number = giver.follow()) load_all(number);
    return;
  }
  int number = first_tile(cluster);
  while (number < items) {
    giver.give(number);
    const int answer = ask_for_tile(number, items, params.next_item, cluster);
    load_all(number);
    number = tile_of(answer, cluster);
  }
  giver.give(items);
}

// ---- The multiplying warpgroups ----

// Issues the matmuls for 16 of k, starting with element `k` of the stage.
template <typename T, class Config, bool kATransposed, bool kBTransposed>
__device__ __forceinline__ void multiply_step(Gemm90Sums<Config>& sums, const unsigned char* a,
                                              const unsigned char* b, int k, bool accumulate) {
  const auto with_b = [&](auto b_tile) {
#pragma unroll
    for (int slab = 0; slab < Config::kOwnSlabs; ++slab) {
      const unsigned char* const rows = a + slab * Config::kBox;
      if constexpr (kATransposed) {
        wgmma<T, Config::kCols>(sums[slab], mn_major(rows, k, Config::kBox), b_tile, accumulate);
      } else {
        wgmma<T, Config::kCols>(sums[slab], k_major(rows, k), b_tile, accumulate);
      }
    }
  };
  if constexpr (kBTransposed) {
    with_b(k_major(b, k));
  } else {
    with_b(mn_major(b, k, Config::kBox));
  }
}

// Gives a warpgroup the operands of each stage.
template <class Config, bool kClusters>
struct Gemm90Stages {
  const unsigned char* ring;
  Gemm90Barriers<Config::kStages>& barriers;
  int first_slab;  // first slab of the warpgroup
  int cluster;     // blocks of the cluster, all of which read a stage before it is reloaded
  RingPlace<Config::kStages> place{};

  __device__ __forceinline__ const unsigned char* a() const {
    return ring + place.stage * Config::kStage + first_slab * Config::kBox;
  }
  __device__ __forceinline__ const unsigned char* b() const {
    return ring + place.stage * Config::kStage + Config::kA;
  }
  __device__ __forceinline__ void wait() {
    mbarrier_wait(barriers.full[place.stage], place.parity);
  }
  __device__ __forceinline__ void release(int stage) {
    const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
    if constexpr (kClusters) {
      if (lane < cluster) mbarrier_arrive_at(barriers.empty[stage], lane);
    } else {
      if (lane == 0) mbarrier_arrive(barriers.empty[stage]);
    }
  }
};

// Computes c [64, kCols] of each slab. The matmuls of a stage are issued while those of the
// previous stage run. When the previous stage's matmuls have finished, that stage is released.
// issued() is called when the matmuls of all stages are issued.
template <typename T, class Config, bool kATransposed, bool kBTransposed, class Stages,
          class Issued>
__device__ __forceinline__ void multiply_stages(Gemm90Sums<Config>& sums, int count, Stages& stages,
                                                const Issued& issued) {
  constexpr int kSteps = Config::kDepth / 16;
  int before = 0;  // number of the stage whose matmuls are in flight
  for (int i = 0; i < count; ++i, stages.place.next()) {
    const unsigned char *const a = stages.a(), *const b = stages.b();
    stages.wait();
    wgmma_fence(sums);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      multiply_step<T, Config, kATransposed, kBTransposed>(sums, a, b, 16 * step,
                                                           i > 0 || step > 0);
    }
    wgmma_commit();
    if (i > 0) {
      wgmma_wait<1>(sums);
      stages.release(before);
    }
    before = stages.place.stage;
  }
  issued();
  wgmma_wait<0>(sums);
  stages.release(before);
}

// Computes the last stage of a group, which covers only steps * 16 elements of k.
template <typename T, class Config, bool kATransposed, bool kBTransposed, class Stages>
__device__ __forceinline__ void multiply_rest(Gemm90Sums<Config>& sums, int steps, bool accumulate,
                                              Stages& stages) {
  const unsigned char *const a = stages.a(), *const b = stages.b();
  stages.wait();
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    wgmma_fence(sums);
    multiply_step<T, Config, kATransposed, kBTransposed>(sums, a, b, 16 * step,
                                                         accumulate || step > 0);
    wgmma_commit();
    wgmma_wait<0>(sums);
  }
  stages.release(stages.place.stage);
  stages.place.next();
}

// Computes a warpgroup's sums over a group of k, whose size is a multiple of 16 and may be 0.
template <typename T, class Config, bool kATransposed, bool kBTransposed, class Stages>
__device__ __forceinline__ void multiply_group(Gemm90Sums<Config>& sums, int size, Stages& stages) {
  const int whole = size / Config::kDepth, rest = size % Config::kDepth;
  if (whole > 0) {
    multiply_stages<T, Config, kATransposed, kBTransposed>(sums, whole, stages, [] {});
  } else {
#pragma unroll
    for (auto& slab : sums) {
#pragma unroll
      for (float& sum : slab) sum = 0;
    }
  }
  if (rest == 0) return;
  multiply_rest<T, Config, kATransposed, kBTransposed>(sums, rest / 16, whole > 0, stages);
}

// Stores all slabs of a warpgroup to c. The sums of later slabs are moved to the registers of the
// first slab, so that there is one copy of the code. Values that depend on the columns, such as
// addresses of biases, are recomputed for each slab, because keeping them takes too many registers.
template <typename T, class Config, class Params>
__device__ __forceinline__ void store_tile(const Params& params, const Gemm90Item& item,
                                           int warpgroup, int first_slab, unsigned char* staging,
                                           Gemm90Sums<Config>& sums) {
  Slab slab = {.number = first_slab,
               .barrier = 1 + warpgroup,
               .box = staging,
               .sums = reinterpret_cast<float*>(staging + Config::kBox)};
  if constexpr (Config::kOwnSlabs == 1) {
    store_products<T, Config>(params, item, slab, sums[0]);
  } else {
#pragma unroll 1
    for (int i = 0; i < Config::kOwnSlabs; ++i, ++slab.number) {
      Gemm90Item again = item;
      again.col = opaque(item.col);
      store_products<T, Config>(params, again, slab, sums[0]);
#pragma unroll
      for (int next = 1; next < Config::kOwnSlabs; ++next) {
#pragma unroll
        for (int e = 0; e < Config::kCols / 2; ++e) sums[next - 1][e] = sums[next][e];
      }
    }
  }
}

// ---- The kernel ----

// Computes the items of a multiplying warpgroup: all items of its block or, with ping-pong, every
// second item. The two ping-pong warpgroups take turns: in a turn, a warpgroup issues the matmuls
// of one item. The turns also keep barrier parities valid. A warpgroup with the turn knows that the
// other one has already waited for all earlier stages. So it is never two phases of a stage's
// barrier behind.
template <typename T, class Config, bool kATransposed, bool kBTransposed, class Params>
__device__ __forceinline__ void compute_items(const Params& params, int warpgroup,
                                              const unsigned char* ring, unsigned char* staging,
                                              Gemm90Barriers<Config::kStages>& barriers) {
  static_assert(!Config::kPingPong || !Params::kGroupsOfK);
  const Turns<Config::kMultipliers, 1 + Config::kMultipliers> turns{warpgroup};
  Gemm90Stages<Config, Params::kClusters> stages{.ring = ring,
                                                 .barriers = barriers,
                                                 .first_slab = Config::kPingPong ? 0 : warpgroup,
                                                 .cluster = params.cluster};
  Gemm90Sums<Config> sums;
  const int items = gemm90_items(params);
  TileReader<Params::kClusters> reader(barriers.items);
  int owner = 0;
  if (Config::kPingPong && turns.is_last()) turns.pass();
  for (int number = reader.next(); number < items; number = reader.next()) {
    ItemPieces<Config, Params> pieces(params, number);
    do {
      const Gemm90Item item = pieces.piece();
      const int size = item.k_end - item.k_begin;
      const int count = (size + Config::kDepth - 1) / Config::kDepth;
      if constexpr (Config::kPingPong) {
        const bool own = owner == warpgroup;
        owner = (owner + 1) % Config::kMultipliers;
        if (!own) {
          stages.place.skip(count);
          continue;
        }
        turns.take();
        multiply_stages<T, Config, kATransposed, kBTransposed>(sums, count, stages,
                                                               [&] { turns.pass(); });
      } else if constexpr (Params::kGroupsOfK) {
        multiply_group<T, Config, kATransposed, kBTransposed>(sums, size, stages);
      } else {
        multiply_stages<T, Config, kATransposed, kBTransposed>(sums, count, stages, [] {});
      }
      if constexpr (!Config::kPingPong) {
        if (!join_parts<Config>(params, item, warpgroup, barriers, sums[0])) continue;
      }
      store_tile<T, Config>(params, item, warpgroup, stages.first_slab, staging, sums);
    } while (pieces.next());
  }
  if (Config::kPingPong && owner == warpgroup) turns.take();  // every pass() needs a take()
}

// Waits until the other blocks of a cluster have started, or no longer use this block's shared
// memory.
template <class Params>
__device__ __forceinline__ void await_cluster(const Params& params) {
  if constexpr (Params::kClusters) {
    if (params.cluster > 1) cluster_sync();
  }
}

// Initialises barriers and prefetches tensor maps. All threads of a block call it, before the
// warpgroups take their roles.
template <class Config, class Params>
__device__ __forceinline__ void prepare_block(const Params& params,
                                              Gemm90Barriers<Config::kStages>& barriers) {
  if (threadIdx.x == 0) {
    prefetch_tensor_map(params.a);
    prefetch_tensor_map(params.b);
    if (Config::kPaired) prefetch_tensor_map(params.b_up);
    if (params.by_boxes) prefetch_tensor_map(params.c);
    constexpr int kReaders = Config::kPingPong ? 1 : Config::kMultipliers;  // warpgroups per stage
    for (int i = 0; i < Config::kStages; ++i) {
      mbarrier_init(barriers.full[i], 1);
      mbarrier_init(barriers.empty[i], params.cluster * kReaders * kWarpgroupSize / kWarpSize);
    }
    barriers.items.init(Config::kMultipliers * kWarpgroupSize / kWarpSize, params.cluster);
    fence_mbarrier_init();
  }
  __syncthreads();
  await_cluster(params);
  await_previous_grid();
}

// Persistent blocks take tiles of c from a queue. In one warpgroup, one thread copies the operands,
// tile after tile, to a ring of stages. Two warpgroups multiply, each 64 rows of a tile or, with
// ping-pong, another tile. So the copies for the next tile overlap this tile's epilogue.
template <typename T, class Config, bool kATransposed, bool kBTransposed, class Params>
__global__ void __launch_bounds__(Config::kThreads, 1)
    gemm90_kernel(const __grid_constant__ Params params) {
  unsigned char* const ring = dynamic_shared();
  unsigned char* const staging = ring + Config::kRing;
  auto& barriers = *reinterpret_cast<Gemm90Barriers<Config::kStages>*>(
      staging + Config::kMultipliers * Config::kStaging);
  prepare_block<Config>(params, barriers);

  // Registers: three threads at the same position in their warpgroups have 504 together.
  const int warpgroup = uniform(static_cast<int>(threadIdx.x) / kWarpgroupSize);
  if (warpgroup == Config::kMultipliers) {
    shrink_registers<40>();
    if (threadIdx.x % kWarpgroupSize == 0) {
      load_items<Config>(params, barriers, [&](const Gemm90Item& item, auto& place) {
        load_item<Config, kATransposed, kBTransposed>(params, item, ring, barriers, place);
      });
    }
  } else {
    grow_registers<232>();
    compute_items<T, Config, kATransposed, kBTransposed>(
        params, warpgroup, ring, staging + warpgroup * Config::kStaging, barriers);
    if (threadIdx.x % kWarpgroupSize == 0) bulk_wait_read<0>();
  }
  await_cluster(params);
}

// ---- Host side ----

// Returns a map of a matrix of `lines` lines of `length` elements, in boxes of box_lines by 64
// elements.
inline TensorMap operand_map(const Matrix& matrix, int64_t lines, int64_t length,
                             int64_t box_lines) {
  constexpr int64_t kAligned = 8;  // a valid stride for a dimension of size 1
  return make_tensor_map(
      {.data = matrix.data,
       .dtype = matrix.dtype,
       .dims = 2,
       .sizes = {length, lines},
       .strides = {1, lines > 1 ? matrix.ld : ceil_div(length, kAligned) * kAligned},
       .box = {64, box_lines}});
}

// Chooses how c is stored; c has c_rows rows.
template <class Config>
void set_outputs(Gemm90Params& params, int64_t c_rows) {
  const GemmProblem& p = params.problem;
  // The partial sums of split-K are f32.
  params.by_boxes = params.work.packs && p.c.dtype != DType::kF32;
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
  params.cluster = work.cluster;
  const int box_lines = Config::kPaired ? kPairCols : Config::kCols / work.cluster;
  params.b = kBTransposed ? operand_map(p.b, p.n, p.k, box_lines)
                          : operand_map(p.b, p.k, p.n, Config::kDepth);
  if (Config::kPaired) params.b_up = operand_map(p.b_up, p.n, p.k, box_lines);
  set_outputs<Config>(params, p.m);
  params.row_tiles = static_cast<int>(ceil_div(p.m, Config::kRows * work.cluster));
  params.col_tiles = static_cast<int>(ceil_div(p.n, Config::kOutCols));
  set_items(params);
  params.next_item = tile_counter(exec);
  simt::launch(gemm90_kernel<T, Config, kATransposed, kBTransposed, Gemm90Params>,
               {.grid = persistent_blocks(exec, params.items, work.cluster),
                .block = Config::kThreads,
                .smem_bytes = gemm90_shared_bytes<Config>(),
                .cluster = work.cluster},
               exec, params);
}

template <typename T, class Config>
void launch_gemm90_tile(const Exec& exec, const GemmProblem& p, const GemmWork& work) {
  if (p.a.transposed && p.b.transposed) {  // has_kernel() excludes this case
    throw InternalError("gemm: no kernel with this tile takes two transposed operands");
  }
  if (p.a.transposed) return launch_gemm90_kernel<T, Config, true, false>(exec, p, work);
  if (p.b.transposed) return launch_gemm90_kernel<T, Config, false, true>(exec, p, work);
  launch_gemm90_kernel<T, Config, false, false>(exec, p, work);
}

// Launches SwiGLU, whose weights are row-major (see GemmArgs).
template <typename T>
void launch_gemm90_pairs(const Exec& exec, const GemmProblem& p, const GemmWork& work) {
  switch (work.tile) {
    case GemmTile::kHopper128x128:
      return launch_gemm90_kernel<T, Gemm90Config<128, 6, true>, false, true>(exec, p, work);
    case GemmTile::kHopper128x256:
      return launch_gemm90_kernel<T, Gemm90Config<256, 4, true>, false, true>(exec, p, work);
    case GemmTile::kHopperPingPong128x128:
      return launch_gemm90_kernel<T, Gemm90PingPong<6, true>, false, true>(exec, p, work);
    default: throw InternalError("gemm: no Hopper kernel with SwiGLU has this tile");
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
    case GemmTile::kHopperPingPong128x128:
      return launch_gemm90_tile<T, Gemm90PingPong<6>>(exec, p, work);
    default: throw InternalError("gemm: no Hopper kernel has this tile");
  }
}

}  // namespace shale::kernels::SHALE_BACKEND
