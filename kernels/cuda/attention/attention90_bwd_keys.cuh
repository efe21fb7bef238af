#pragma once

// Computes dK and dV, and in the fast variant dQ, with warpgroups. The algorithm is that of the
// portable kernel (kernels/cuda/attention/attention_bwd_keys.cuh). For heads up to 128;
// attention90_bwd_keys_wide.cuh has larger heads.
//
// A block owns a tile of keys of one kv head. One warp loads Q and dO of the queries that see these
// keys; each of two warpgroups has 64 of the keys. With keys as rows, S^T = K Q^T and dP^T = V dO^T
// are in registers as left operands of dV += P^T dO and dK += dS^T Q. Only dS passes through shared
// memory, for dQ = dS K. TMA adds a block's part of dQ to the sums in memory.
//
// The tensor cores run matmuls without a gap as long as one is queued while a warpgroup computes.
// At the start of a step its S^T is ready. A step computes what is on the left, concurrently with
// the matmul on the right:
//
//   P^T = 2^(scale S^T - lse2)          dP^T = V dO^T
//   dS^T = P^T (dP^T - delta)           dV += P^T dO
//   dS to shared memory, the barrier    dK += dS^T Q
//   dQ added to the sums in memory      S^T of the next step
//
// Warpgroups that synchronise in each step compute at the same time, and overlap with at most half
// of a step's matmuls. With heads of 64 and 96, computing takes long. A step then computes dQ of
// the previous step, for which dS is ready. So the warpgroups may be a step apart, and one of them
// computes while the other one multiplies.

#include <type_traits>

#include "shale/kernels/cuda/attention/attention90_bwd_keys_tile.cuh"
#include "shale/kernels/cuda/attention/attention90_bwd_keys_wide.cuh"

namespace shale::kernels::SHALE_BACKEND {

template <int kHeadSize>
struct Bwd90KeysShared {
  static constexpr int kKeys = kBwd90Keys, kQueries = bwd90_queries(kHeadSize);
  static constexpr int kDsPlaces = bwd90_dq_is_late(kHeadSize) ? 3 : 2;

  BoxedTile<kKeys, kHeadSize> k, v;  // K and V; finally dK and dV
  BoxedTile<kQueries, kHeadSize> q[kBwd90Stages], dout[kBwd90Stages];
  BoxedTile<kKeys, kQueries> ds[kDsPlaces];  // dS of consecutive steps, in rotation
  // 16 rows and 64 columns of dQ for each warp, in the layout of AttentionParams::dq_sums.
  alignas(16) float dq[kBwd90Consumers * kWarpgroupSize / kWarpSize][16 * 64];
  Bwd90Stage<kQueries> stages[kBwd90Stages];
  Bwd90KeysBarriers barriers;
};

// ---- The computing warpgroups ----

// kCapped: the problem has a softcap.
template <typename T, int kHeadSize, bool kWithDq, bool kCapped>
class Bwd90KeysConsumer {
  using Shared = Bwd90KeysShared<kHeadSize>;
  static constexpr int kQueries = Shared::kQueries;
  static constexpr int kConsumerThreads = kBwd90Consumers * kWarpgroupSize;
  // With a softcap dQ is not computed a step late: ptxas would make each matmul wait immediately.
  static constexpr bool kDqIsLate = kWithDq && !kCapped && bwd90_dq_is_late(kHeadSize);
  // P^T and dS^T are rounded to operands in parts of 32 queries.
  static constexpr int kParts = kQueries / 32, kPartBlocks = 4, kPartOperands = 2;

 public:
  __device__ __forceinline__ Bwd90KeysConsumer(const Bwd90Params& params, Shared& shared,
                                               int warpgroup)
      : params_(params), shared_(shared), warpgroup_(warpgroup) {}

  __device__ __forceinline__ void run() {
    set_zero(dk_);
    set_zero(dv_);
    {
      const KeyTile block = bwd90_keys_block<kBwd90Keys>(params_);
      QueryStep<kBwd90Keys, kQueries> next(block.sequence, block.key,
                                           block.place.head * block.group);
      const int steps = uniform(next.count(block.group));
      rows_.set(block.sequence, block.key + 64 * warpgroup_);
      if (steps > 0) {
        mbarrier_wait(shared_.barriers.kv_full, 0);
        wgmma_fence(dk_, dv_);
        issue_scores();
        wgmma_wait<0>(scores_);
        go_over(steps);
      }
    }
    if (kWithDq && lane_id() == 0) bulk_wait_read<0>();
    store();
  }

 private:
  // Runs all steps. scores_ has S^T of the first step.
  __device__ __forceinline__ void go_over(int steps) {
    if constexpr (kDqIsLate) {
      if (steps == 1) {
        advance<false>(0);
      } else {
        advance<true>(0);
        for (int step = 1; step < steps - 1; ++step) advance<true, true>(step);
        advance<false, true>(steps - 1);
      }
      float dq[32];
      await_ds(steps - 1);
      issue_dq(dq, ds_of(steps - 1));
      wgmma_wait<0>(dq);
      add_dq(dq, row_before_);
    } else {
      for (int left = steps; left > 1; --left) advance<true>(left);
      advance<false>(1);
    }
  }

  // These functions issue the matmuls of S^T, dP^T and a part of dV without waiting for them.
  __device__ __forceinline__ void issue_scores() {
    mbarrier_wait(shared_.barriers.q_full[place_.stage], place_.parity);
    discard(scores_);
    issue_product<T>(scores_, shared_.k, 64 * warpgroup_, shared_.q[place_.stage]);
  }
  __device__ __forceinline__ void issue_dp() {
    mbarrier_wait(shared_.barriers.dout_full[place_.stage], place_.parity);
    discard(dp_);
    issue_product<T>(dp_, shared_.v, 64 * warpgroup_, shared_.dout[place_.stage]);
    wgmma_fence(scores_);  // the compiler must not move later writes to scores_ up to here
  }
  __device__ __forceinline__ void issue_dv(int part) {
    const int first = part * kPartOperands;
    round_to_operands<T>(scores_, probabilities_, first, kPartOperands);
    issue_sum<T>(dv_, probabilities_, shared_.dout[place_.stage], first, kPartOperands);
  }

  // Buffer of dS of a step; steps are numbered consecutively.
  __device__ __forceinline__ BoxedTile<kBwd90Keys, kQueries>& ds_of(int step) {
    return shared_.ds[step % Shared::kDsPlaces];
  }
  // If dQ is computed one step late, a warpgroup signals with give_ds() that its half of dS is
  // ready, and waits with await_ds() for the other warpgroup's half. Each direction uses two
  // barriers alternately: a warpgroup may signal its next half before the other one has waited for
  // this half.
  __device__ __forceinline__ void give_ds(int step) {
    barrier_arrive(2 + 2 * (1 - warpgroup_) + step % 2, kConsumerThreads);
  }
  __device__ __forceinline__ void await_ds(int step) {
    barrier_sync(2 + 2 * warpgroup_ + step % 2, kConsumerThreads);
  }

  // Issues the warpgroup's [64, 64] part of dQ = dS K.
  __device__ __forceinline__ void issue_dq(float (&dq)[32],
                                           const BoxedTile<kBwd90Keys, kQueries>& ds) {
    // With heads of 96, the second box of K has 32 columns of zeros, so these columns of dQ are
    // zeros too.
    discard(dq);
    wgmma_fence(dq);
#pragma unroll
    for (int k = 0; k < kBwd90Keys; k += 16) {
      wgmma<T, 64>(dq, ds.by_columns(kHeadSize == 64 ? warpgroup_ : 0, k),
                   shared_.k.by_columns(kHeadSize == 64 ? 0 : warpgroup_, k), k > 0);
    }
    wgmma_commit();
  }
  __device__ __forceinline__ void add_dq(const float (&dq)[32], int64_t first_row) {
    const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
    const int64_t row = first_row + (kHeadSize == 64 ? 64 * warpgroup_ : 0) + 16 * warp_in_group();
    const int column = kHeadSize == 64 ? 0 : 64 * warpgroup_;
    const int columns = std::min(64, kHeadSize - column);
    add_fragments<1>(dq, 0, shared_.dq[warp],
                     params_.problem.dq_sums + row * kHeadSize + 16 * column, 16 * columns);
  }

  __device__ __forceinline__ void release(int stage) {
    release_stage(shared_.barriers.empty[stage]);
  }
  template <bool kHasNext>
  __device__ __forceinline__ void go_on() {
    place_.next();
    if constexpr (kHasNext) issue_scores();
  }

  // Processes one tile of queries. scores_ has the tile's S^T, and at the end S^T of the next tile,
  // if there is one. No matmul is in flight at the end of a loop iteration: otherwise ptxas would
  // insert a wait after every matmul of the loop.
  template <bool kHasNext, bool kHasPrevious = false>
  __device__ __forceinline__ void advance(int step) {
    const auto& stage = shared_.stages[place_.stage];
    compute_ds(stage);
    if constexpr (kDqIsLate) {
      finish_with_late_dq<kHasNext, kHasPrevious>(stage.row, step);
    } else if constexpr (kWithDq) {
      finish_with_dq<kHasNext>(stage.row, step);
    } else {
      finish<kHasNext>();
    }
  }

  // Computes dS^T as left operands. The matmuls of dV are still in flight at the end.
  __device__ __forceinline__ void compute_ds(const Bwd90Stage<kQueries>& stage) {
    const AttentionParams& p = params_.problem;
    const bool masked = rows_.masks(stage.query, kQueries);
    issue_dp();
    if constexpr (kCapped) cap_scores(scores_, p);
    exponentiate(scores_, stage.lse2, p);
    if (masked) rows_.mask(scores_, stage.query);
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      issue_dv(part);
      if (part == 0) wgmma_wait<1>(dp_);
      const int block = part * kPartBlocks;
      if constexpr (kCapped) {
        cap_gradients(dp_, scores_, stage.delta, stage.lse2, p, block, kPartBlocks);
      }
      differentiate(dp_, scores_, stage.delta, block, kPartBlocks);
      // without the mask, P = 0 times an infinite dP would be NaN
      if (masked) rows_.mask(dp_, stage.query, block, kPartBlocks);
      round_to_operands<T>(dp_, ds_, part * kPartOperands, kPartOperands);
    }
  }

  template <bool kHasNext>
  __device__ __forceinline__ void finish() {
    issue_sum<T>(dk_, ds_, shared_.q[place_.stage]);
    wgmma_wait<1>(dv_);
    const int done = place_.stage;
    go_on<kHasNext>();
    wgmma_wait<kHasNext ? 1 : 0>(dk_);
    release(done);
    if constexpr (kHasNext) wgmma_wait<0>(scores_);
  }

  template <bool kHasNext>
  __device__ __forceinline__ void finish_with_dq(int64_t row, int step) {
    put_operands(ds_, ds_of(step), 64 * warpgroup_, 0);
    issue_sum<T>(dk_, ds_, shared_.q[place_.stage]);
    // Waits until dS is complete and all warps have read dS of the previous step, whose buffer is
    // then free.
    barrier_sync(1, kConsumerThreads);
    float dq[32];
    issue_dq(dq, ds_of(step));
    wgmma_wait<1>(dv_, dk_);
    release(place_.stage);
    go_on<kHasNext>();
    wgmma_wait<kHasNext ? 1 : 0>(dq);
    add_dq(dq, row);
    if constexpr (kHasNext) wgmma_wait<0>(scores_);
  }

  // Finishes a step: computes its dK, and dQ of the previous step if kHasPrevious.
  template <bool kHasNext, bool kHasPrevious>
  __device__ __forceinline__ void finish_with_late_dq(int64_t row, int step) {
    // After the wait, the other warpgroup has written its half of dS of the previous step. So it no
    // longer reads dS of three steps before, whose buffer this step reuses.
    if constexpr (kHasPrevious) await_ds(step - 1);
    put_operands(ds_, ds_of(step), 64 * warpgroup_, 0);
    give_ds(step);
    issue_sum<T>(dk_, ds_, shared_.q[place_.stage]);
    const int done = place_.stage;
    wgmma_wait<1>(dv_);  // the next matmul reuses the operands' registers
    constexpr int kScores = kHasNext ? 1 : 0, kDq = kHasPrevious ? 1 : 0;
    float dq[32];
    if constexpr (kHasPrevious) issue_dq(dq, ds_of(step - 1));
    go_on<kHasNext>();
    wgmma_wait<kScores + kDq>(dk_);
    release(done);
    if constexpr (kHasPrevious) {
      wgmma_wait<kScores>(dq);
      add_dq(dq, row_before_);
    }
    if constexpr (kHasNext) wgmma_wait<0>(scores_);
    row_before_ = row;
  }

  __device__ __forceinline__ void store() {
    const AttentionParams& p = params_.problem;
    const KeyTile block = bwd90_keys_block<kBwd90Keys>(params_);
    const int first = block.key + 64 * warpgroup_, keys = static_cast<int>(p.keys);
    barrier_sync(1, kConsumerThreads);  // all matmuls have read K and V
#pragma unroll
    for (float& value : dk_) value *= p.scale;
    store_rows(dk_, shared_.k, 64 * warpgroup_,
               head_rows<T>(p.dk, block.place.batch, block.place.head), p.dk.row_stride, first,
               keys);
    store_rows(dv_, shared_.v, 64 * warpgroup_,
               head_rows<T>(p.dv, block.place.batch, block.place.head), p.dv.row_stride, first,
               keys);
  }

  const Bwd90Params& params_;
  Shared& shared_;
  int warpgroup_;
  Bwd90KeyRows rows_;
  int64_t row_before_ = 0;  // Bwd90Stage::row of the previous step, for late dQ
  RingPlace<kBwd90Stages> place_;
  float dk_[kHeadSize / 2], dv_[kHeadSize / 2];
  float scores_[kQueries / 2], dp_[kQueries / 2];
  uint32_t probabilities_[kQueries / 16][4], ds_[kQueries / 16][4];
};

// ---- The kernel ----

template <int kHeadSize>
using Bwd90KeysSharedOf =
    std::conditional_t<is_bwd90_wide(kHeadSize), Bwd90WideKeysShared<kHeadSize>,
                       Bwd90KeysShared<kHeadSize>>;

template <typename T, int kHeadSize, bool kWithDq, bool kCapped>
__device__ __forceinline__ void compute_bwd90_keys(const Bwd90Params& params,
                                                   Bwd90KeysSharedOf<kHeadSize>& shared,
                                                   int warpgroup) {
  if constexpr (!is_bwd90_wide(kHeadSize)) {
    Bwd90KeysConsumer<T, kHeadSize, kWithDq, kCapped>(params, shared, warpgroup).run();
  } else if (kHeadSize / 64 % 2 == 0 || warpgroup == 0) {
    Bwd90WideKeysConsumer<T, kHeadSize, kWithDq, kCapped, 0>(params, shared, warpgroup).run();
  } else {
    Bwd90WideKeysConsumer<T, kHeadSize, kWithDq, kCapped, 1>(params, shared, warpgroup).run();
  }
}

template <typename T, int kHeadSize, bool kWithDq, bool kCapped>
__global__ void __launch_bounds__(kBwd90Threads, 1)
    attention90_bwd_keys_kernel(const __grid_constant__ Bwd90Params params) {
  using Shared = Bwd90KeysSharedOf<kHeadSize>;
  Shared& shared = *dynamic_shared<Shared>();
  if (threadIdx.x == 0) {
    params.prefetch_maps();
    shared.barriers.init();
  }
  __syncthreads();
  await_previous_grid();

  const int warpgroup = uniform(static_cast<int>(threadIdx.x) / kWarpgroupSize);
  if (warpgroup == kBwd90Consumers) {
    shrink_registers<kBwd90ProducerRegisters>();
    if (warp_in_group() == 0) load_bwd90_keys(params, shared);
  } else {
    grow_registers<kBwd90ConsumerRegisters>();
    compute_bwd90_keys<T, kHeadSize, kWithDq, kCapped>(params, shared, warpgroup);
  }
}

template <typename T, int kHeadSize>
void launch_attention90_bwd_keys_kernel(const Exec& exec, const AttentionParams& p) {
  using Shared = Bwd90KeysSharedOf<kHeadSize>;
  const auto params =
      bwd90_params<Shared::kQueries, Shared::kKeys>(p, order_by_keys(p, Shared::kKeys));
  const auto kernel_with = [&]<bool kCapped>() {
    return p.dq_sums != nullptr ? attention90_bwd_keys_kernel<T, kHeadSize, true, kCapped>
                                : attention90_bwd_keys_kernel<T, kHeadSize, false, kCapped>;
  };
  const auto kernel = p.softcap > 0 ? kernel_with.template operator()<true>()
                                    : kernel_with.template operator()<false>();
  simt::launch(
      kernel, {.grid = params.order.blocks(), .block = kBwd90Threads, .smem_bytes = sizeof(Shared)},
      exec, params);
}

template <typename T>
void launch_attention90_bwd_keys(const Exec& exec, const AttentionParams& p) {
  with_bwd90_head_size(p.head_size, [&]<int kHeadSize>() {
    launch_attention90_bwd_keys_kernel<T, kHeadSize>(exec, p);
  });
}

}  // namespace shale::kernels::SHALE_BACKEND
