#pragma once

#include "shale/kernels/cuda/gemm/gemm90_fp8.h"
#include "shale/kernels/cuda/gemm/gemm90_kernel.cuh"

namespace shale::kernels::SHALE_BACKEND {

// fp8 GEMMs with scales (kernels/fp8.h): a is of type TA, b is E4M3. A stage is kFp8Block of k, 128
// bytes of a line, so that all products in it share the scales of their row and of their column.
// The tensor cores keep only about 14 bits of their sums (arXiv:2412.19437, section 3.3.2), so the
// threads add the result of each stage in f32, times the scales. At the same time the tensor cores
// compute the next stage in other registers.
//
// A thread has 64 sums and twice as many results of stages, which leaves forty registers for other
// values. The codes of a stage are followed by the scales of its 128 rows and columns.
template <int kStages_>
struct Fp8Gemm90Config : Gemm90Config<128, kStages_> {
  using Base = Gemm90Config<128, kStages_>;
  static constexpr int kDepth = static_cast<int>(kFp8Block), kStepDepth = 32;
  static constexpr int kScales = kDepth * 4;  // bytes of an operand's scales
  static constexpr int kCodes = Base::kA + Base::kB, kStage = kCodes + 2 * kScales;
  static constexpr int kRing = kStages_ * kStage;
  static_assert(Base::kRows == kDepth && Base::kCols == kDepth);
};

struct Fp8Scales {
  const float* data;  // [stages, lines]: one scale per line and stage
  int64_t stride;
};

struct Fp8Gemm90Params : Gemm90Params {
  Fp8Scales a_scales, b_scales;
};

// ---- The loading thread ----

template <class Config>
__device__ __forceinline__ void load_scales(unsigned char* to, const Fp8Scales& scales,
                                            MBarrier& full, int line, int k) {
  const float* const from = scales.data + k / Config::kDepth * scales.stride + line;
  bulk_load(to, from, Config::kScales, full);
}

template <class Config>
__device__ __forceinline__ void load_fp8_item(const Fp8Gemm90Params& params, const Gemm90Item& item,
                                              unsigned char* ring,
                                              Gemm90Barriers<Config::kStages>& barriers,
                                              RingPlace<Config::kStages>& place) {
  for (int k = item.k_begin; k < item.k_end; k += Config::kDepth, place.next()) {
    unsigned char* const stage = ring + place.stage * Config::kStage;
    MBarrier& full = barriers.full[place.stage];
    mbarrier_wait(barriers.empty[place.stage], place.parity ^ 1);
    mbarrier_arrive_expect(full, Config::kStage);
    tma_load(stage, params.a, full, k, item.row);
    if (params.cluster > 1) {
      load_for_cluster<Config, /*kAlongK=*/true>(stage + Config::kA, params, full, item.col, k);
    } else {
      tma_load(stage + Config::kA, params.b, full, k, item.col);
    }
    // The last block of a cluster may have no rows, and then it has no scales.
    const int row = item.row < item.row_end ? item.row : 0;
    load_scales<Config>(stage + Config::kCodes, params.a_scales, full, row, k);
    load_scales<Config>(stage + Config::kCodes + Config::kScales, params.b_scales, full, item.col,
                        k);
  }
}

// ---- The multiplying warpgroups ----

template <class Config>
using Fp8Sums = float[Config::kCols / 2];

// Gives a warpgroup the operands of each stage, for the rows of one slab. kLines: each column of c
// has a scale; otherwise a tile has one.
template <typename TA, class Config, bool kLines>
class Fp8Stages {
 public:
  __device__ __forceinline__ Fp8Stages(const unsigned char* ring,
                                       Gemm90Barriers<Config::kStages>& barriers, int slab,
                                       int cluster)
      : ring_(ring), barriers_(barriers), slab_(slab), cluster_(cluster) {}

  // Issues the matmul of the next stage, as one wgmma group.
  __device__ __forceinline__ void multiply(Fp8Sums<Config>& products) {
    mbarrier_wait(barriers_.full[next_.stage], next_.parity);
    const unsigned char* const a = at(next_.stage) + slab_ * Config::kBox;
    const unsigned char* const b = at(next_.stage) + Config::kA;
    wgmma_fence(products);
#pragma unroll
    for (int k = 0; k < Config::kDepth; k += Config::kStepDepth) {
      wgmma<TA, e4m3, Config::kCols>(products, k_major<1>(a, k), k_major<1>(b, k), k > 0);
    }
    wgmma_commit();
    next_.next();
  }

  // Adds the results of the oldest stage, whose matmuls are complete, to sums, and releases the
  // stage.
  __device__ __forceinline__ void add(Fp8Sums<Config>& sums, const Fp8Sums<Config>& products) {
    const auto* const a = reinterpret_cast<const float*>(at(oldest_) + Config::kCodes);
    const float* const b = a + Config::kDepth;
    // The layout of sums and products is that of kernels/simt/wgmma.h.
    const int thread = static_cast<int>(threadIdx.x) % kWarpgroupSize, lane = thread % kWarpSize;
    const int row = slab_ * kGemm90SlabRows + thread / kWarpSize * 16 + lane / 4;
    const float upper = a[row], lower = a[row + 8];
#pragma unroll
    for (int i = 0; i < Config::kCols / 2; i += 4) {
      const Floats<2> scales = of_columns(b, 2 * i + lane % 4 * 2);
      sums[i] = fmaf(products[i], upper * scales.at[0], sums[i]);
      sums[i + 1] = fmaf(products[i + 1], upper * scales.at[1], sums[i + 1]);
      sums[i + 2] = fmaf(products[i + 2], lower * scales.at[0], sums[i + 2]);
      sums[i + 3] = fmaf(products[i + 3], lower * scales.at[1], sums[i + 3]);
    }
    __syncwarp();  // all lanes have read the scales
    if (lane < cluster_) mbarrier_arrive_at(barriers_.empty[oldest_], lane);
    oldest_ = oldest_ + 1 < Config::kStages ? oldest_ + 1 : 0;
  }

 private:
  __device__ __forceinline__ const unsigned char* at(int stage) const {
    return ring_ + stage * Config::kStage;
  }
  static __device__ __forceinline__ Floats<2> of_columns(const float* scales, int column) {
    if constexpr (kLines) return load_floats<2>(scales + column);
    return {scales[0], scales[0]};
  }

  const unsigned char* ring_;
  Gemm90Barriers<Config::kStages>& barriers_;
  int slab_, cluster_, oldest_ = 0;
  RingPlace<Config::kStages> next_;
};

// Computes the sums [64, 128] over `count` stages, at least 1.
template <typename TA, class Config, bool kLines>
__device__ __forceinline__ void multiply_scaled(Fp8Sums<Config>& sums, int count,
                                                Fp8Stages<TA, Config, kLines>& stages) {
  Fp8Sums<Config> even, odd;
#pragma unroll
  for (float& sum : sums) sum = 0;
  stages.multiply(even);
  int i = 1;
#pragma unroll 1
  for (; i + 1 < count; i += 2) {
    stages.multiply(odd);
    wgmma_wait<1>(even);
    stages.add(sums, even);
    stages.multiply(even);
    wgmma_wait<1>(odd);
    stages.add(sums, odd);
  }
  if (i < count) {
    stages.multiply(odd);
    wgmma_wait<1>(even);
    stages.add(sums, even);
    wgmma_wait<0>(odd);
    stages.add(sums, odd);
  } else {
    wgmma_wait<0>(even);
    stages.add(sums, even);
  }
}

// ---- The kernel ----

// The same kernel as gemm90_kernel, but with scales.
template <typename TA, class Config, bool kLines>
__global__ void __launch_bounds__(Config::kThreads, 1)
    fp8_gemm90_kernel(const __grid_constant__ Fp8Gemm90Params params) {
  unsigned char* const ring = dynamic_shared();
  unsigned char* const staging = ring + Config::kRing;
  auto& barriers = *reinterpret_cast<Gemm90Barriers<Config::kStages>*>(
      staging + Config::kMultipliers * Config::kStaging);
  prepare_block<Config>(params, barriers);

  const int warpgroup = uniform(static_cast<int>(threadIdx.x) / kWarpgroupSize);
  if (warpgroup == Config::kMultipliers) {
    shrink_registers<40>();
    if (threadIdx.x % kWarpgroupSize == 0) {
      load_items<Config>(params, barriers, [&](const Gemm90Item& item, auto& place) {
        load_fp8_item<Config>(params, item, ring, barriers, place);
      });
    }
  } else {
    grow_registers<232>();
    Fp8Stages<TA, Config, kLines> stages(ring, barriers, warpgroup, params.cluster);
    unsigned char* const own = staging + warpgroup * Config::kStaging;
    const Slab slab = {.number = warpgroup,
                       .barrier = 1 + warpgroup,
                       .box = own,
                       .sums = reinterpret_cast<float*>(own + Config::kBox)};
    TileReader<Fp8Gemm90Params::kClusters> reader(barriers.items);
    for (int number = reader.next(); number < params.items; number = reader.next()) {
      ItemPieces<Config, Fp8Gemm90Params> pieces(params, number);
      do {
        const Gemm90Item item = pieces.piece();
        const int count = (item.k_end - item.k_begin + Config::kDepth - 1) / Config::kDepth;
        Fp8Sums<Config> sums;
        multiply_scaled(sums, count, stages);
        if (!join_parts<Config>(params, item, warpgroup, barriers, sums)) continue;
        store_products<bf16, Config>(params, item, slab, sums);
      } while (pieces.next());
    }
    if (threadIdx.x % kWarpgroupSize == 0) bulk_wait_read<0>();
  }
  await_cluster(params);
}

// ---- Host side ----

template <class Config>
TensorMap codes_map(const View& codes, int64_t lines) {
  return make_tensor_map({.data = codes.data,
                          .dtype = codes.dtype,
                          .dims = 2,
                          .sizes = {codes.size(1), codes.size(0)},
                          .strides = {1, codes.stride(0)},
                          .box = {Config::kDepth, lines}});
}

template <typename TA, class Config, bool kLines>
void launch_fp8_kernel(const Exec& exec, const Fp8GemmArgs& args, const GemmProblem& p,
                       const GemmWork& work) {
  const auto scales = [](const Fp8Operand& operand) {
    return Fp8Scales{operand.scales.as<float>(), operand.scales.stride(0)};
  };
  Fp8Gemm90Params params{};
  params.problem = p;
  params.work = work;
  params.cluster = work.cluster;
  params.a = codes_map<Config>(args.a.codes, Config::kRows);
  params.b = codes_map<Config>(args.b.codes, Config::kCols / work.cluster);
  params.a_scales = scales(args.a), params.b_scales = scales(args.b);
  set_outputs<Config>(params, p.m);
  params.row_tiles = static_cast<int>(ceil_div(p.m, Config::kRows * work.cluster));
  params.col_tiles = static_cast<int>(ceil_div(p.n, Config::kCols));
  set_items(params);
  params.next_item = tile_counter(exec);
  simt::launch(fp8_gemm90_kernel<TA, Config, kLines>,
               {.grid = persistent_blocks(exec, params.items, work.cluster),
                .block = Config::kThreads,
                .smem_bytes = gemm90_shared_bytes<Config>(),
                .cluster = work.cluster},
               exec, params);
}

}  // namespace shale::kernels::SHALE_BACKEND
