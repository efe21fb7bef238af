#pragma once

// dK and dV, and in the fast variant dQ, as the portable kernel does it
// (kernels/cuda/attention/attention_bwd_keys.cuh), by warpgroups.
//
// A block owns a tile of keys of one kv head; one warp loads Q and dO of the queries that see them,
// two warpgroups have 64 of the keys each. With keys as rows, S^T = K Q^T and dP^T = V dO^T lie in
// registers as left operands of dV += P^T dO and dK += dS^T Q, and only dS passes through shared
// memory, for dQ = dS K. What a block has of dQ, the copy engine adds to the sums in memory.
//
// Products follow each other on the tensor cores without a gap as long as one is queued while a
// warpgroup computes. In a step, whose S^T is there when it begins, that is:
//
//   computed                            beside
//   P^T = 2^(scale S^T - lse2)          dP^T = V dO^T
//   dS^T = P^T (dP^T - delta)           dV += P^T dO
//   dS to shared memory, the barrier    dK += dS^T Q
//   dQ to its place in the sums         S^T of the next step

#include "shale/kernels/cuda/attention/attention90_bwd.cuh"

namespace shale::kernels::SHALE_BACKEND {

template <int kHeadSize>
struct Bwd90KeysShared {
  static constexpr int kQueries = bwd90_queries(kHeadSize);

  BoxedTile<kBwd90Keys, kHeadSize> k, v;  // at the end: dK, dV
  struct Stage {
    BoxedTile<kQueries, kHeadSize> q, dout;
    alignas(16) float lse2[kQueries];
    alignas(16) float delta[kQueries];
    int64_t row;  // of the first query in AttentionParams::dq_sums
    int query;
  } stages[kBwd90Stages];
  BoxedTile<kBwd90Keys, kQueries> ds[2];  // of even steps and of odd ones
  // 16 rows and 64 columns of dQ of each warp, as AttentionParams::dq_sums has them.
  alignas(16) float dq[kBwd90Consumers * kWarpgroupSize / kWarpSize][16 * 64];
  MBarrier kv_full, patch;
  MBarrier q_full[kBwd90Stages], dout_full[kBwd90Stages], empty[kBwd90Stages];
};

// What a block owns. Asked for again where it is needed: registers are short.
__device__ __forceinline__ KeyTile bwd90_keys_block(const Bwd90Params& params) {
  const AttentionParams& p = params.problem;
  return KeyTile(p, block_place(params.order, p.kv_heads), kBwd90Keys);
}

// ---- The warp that loads ----

template <int kHeadSize>
__device__ __forceinline__ void load_bwd90_keys(const Bwd90Params& params,
                                                Bwd90KeysShared<kHeadSize>& shared) {
  constexpr int kQueries = bwd90_queries(kHeadSize);
  const AttentionParams& p = params.problem;
  const KeyTile block = bwd90_keys_block(params);
  const int batch = block.place.batch;
  TileLoader loader(shared.patch);
  QueryStep<kBwd90Keys, kQueries> next(block.sequence, block.key,
                                       block.place.head * block.group);
  const int steps = next.count(block.group);
  if (steps == 0) return;
  const RowRange keys = {block.key, block.sequence.keys, static_cast<int>(p.keys), block.place.head,
                         batch};
  loader.load(shared.k, params.k, shared.kv_full, keys);
  loader.load(shared.v, params.v, shared.kv_full, keys);
  RingPlace<kBwd90Stages> place;
  for (int step = 0; step < steps; ++step, next.advance(), place.next()) {
    auto& stage = shared.stages[place.stage];
    MBarrier &q_full = shared.q_full[place.stage], &dout_full = shared.dout_full[place.stage];
    const int query = next.query();
    const RowRange rows = {query, block.sequence.queries, static_cast<int>(p.queries), next.head,
                           batch};
    if (lane_id() == 0) {
      mbarrier_wait(shared.empty[place.stage], place.parity ^ 1);
      const int64_t row = (batch * p.heads + next.head) * p.padded_queries + query;
      stage.row = row;
      stage.query = query;
      constexpr int kBytes = kQueries * static_cast<int>(sizeof(float));
      mbarrier_arrive_expect(q_full, kBytes);
      bulk_load(stage.lse2, p.lse2 + row, kBytes, q_full);
      mbarrier_arrive_expect(dout_full, kBytes);
      bulk_load(stage.delta, p.delta + row, kBytes, dout_full);
    }
    loader.load(stage.q, params.q, q_full, rows);
    loader.load(stage.dout, params.dout, dout_full, rows);
  }
}

// ---- The warpgroups that compute ----

// kCapped: scores are.
template <typename T, int kHeadSize, bool kWithDq, bool kCapped>
class Bwd90KeysConsumer {
  using Shared = Bwd90KeysShared<kHeadSize>;
  static constexpr int kQueries = Shared::kQueries;
  static constexpr int kConsumerThreads = kBwd90Consumers * kWarpgroupSize;
  // P^T and dS^T go to dV and to operands by parts of 32 queries.
  static constexpr int kParts = kQueries / 32, kPartBlocks = 4, kPartOperands = 2;

 public:
  __device__ __forceinline__ Bwd90KeysConsumer(const Bwd90Params& params, Shared& shared,
                                               int warpgroup)
      : params_(params), shared_(shared), warpgroup_(warpgroup) {}

  __device__ __forceinline__ void run() {
    set_zero(dk_);
    set_zero(dv_);
    {
      const KeyTile block = bwd90_keys_block(params_);
      QueryStep<kBwd90Keys, kQueries> next(block.sequence, block.key,
                                           block.place.head * block.group);
      const int steps = uniform(next.count(block.group));
      // The last of the warpgroup's keys is first seen by the latest query, the first one last by
      // the earliest.
      const int first_key = block.key + 64 * warpgroup_;
      const int unmasked = block.sequence.first_query(first_key + kWarpgroupSize / 2 - 1);
      const int unmasked_end = block.sequence.end_query(first_key);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int key = first_key + thread_row() + 8 * half;
        first_query_[half] = block.sequence.first_query(key);
        end_query_[half] = block.sequence.end_query(key);
      }
      if (steps > 0) {
        mbarrier_wait(shared_.kv_full, 0);
        wgmma_fence(dk_, dv_);
        issue_scores();
        wgmma_wait<0>(scores_);
        for (int left = steps; left > 1; --left) advance<true>(left % 2, unmasked, unmasked_end);
        advance<false>(1, unmasked, unmasked_end);
      }
    }
    if (kWithDq && lane_id() == 0) bulk_wait_read<0>();
    store();
  }

 private:
  // S^T, dP^T and a part of dV, under way.
  __device__ __forceinline__ void issue_scores() {
    mbarrier_wait(shared_.q_full[place_.stage], place_.parity);
    discard(scores_);
    issue_product<T>(scores_, shared_.k, 64 * warpgroup_, shared_.stages[place_.stage].q);
  }
  __device__ __forceinline__ void issue_dp() {
    mbarrier_wait(shared_.dout_full[place_.stage], place_.parity);
    discard(dp_);
    issue_product<T>(dp_, shared_.v, 64 * warpgroup_, shared_.stages[place_.stage].dout);
    if constexpr (kCapped) wgmma_fence(scores_);  // what caps them stays behind the product
  }
  __device__ __forceinline__ void issue_dv(int part) {
    const int first = part * kPartOperands;
    round_to_operands<T>(scores_, probabilities_, first, kPartOperands);
    issue_sum<T>(dv_, probabilities_, shared_.stages[place_.stage].dout, first, kPartOperands);
  }

  // S^T becomes P^T.
  __device__ __forceinline__ void exponentiate(const float* lse2) {
    lse2 += opaque(thread_column());
#pragma unroll
    for (int j = 0; j < kQueries / 8; ++j) {
      const auto shift = load_floats<2>(lse2 + 8 * j);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        float& value = scores_[4 * j + e];
        value = fast_exp2(fmaf(value, params_.problem.scale_log2, -shift.at[e % 2]));
      }
    }
  }
  // A part of dP^T becomes what differentiate() wants of scores that are capped.
  __device__ __forceinline__ void cap_gradients(const float* delta, const float* lse2, int part) {
    delta += opaque(thread_column());
    lse2 += opaque(thread_column());
#pragma unroll
    for (int j = part * kPartBlocks; j < (part + 1) * kPartBlocks; ++j) {
      const auto mean = load_floats<2>(delta + 8 * j), shift = load_floats<2>(lse2 + 8 * j);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float slope = slope_of(scores_[4 * j + e], shift.at[e % 2], params_.problem);
        dp_[4 * j + e] = capped_gradient(dp_[4 * j + e], mean.at[e % 2], slope);
      }
    }
  }
  // A part of dP^T becomes dS^T = P^T (dP^T - delta).
  __device__ __forceinline__ void differentiate(const float* delta, int part) {
    delta += opaque(thread_column());
#pragma unroll
    for (int j = part * kPartBlocks; j < (part + 1) * kPartBlocks; ++j) {
      const auto mean = load_floats<2>(delta + 8 * j);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        float& value = dp_[4 * j + e];
        value = scores_[4 * j + e] * (value - mean.at[e % 2]);
      }
    }
  }

  // dS^T to rows of shared memory: two queries of a key at a time.
  __device__ __forceinline__ void put_ds(BoxedTile<kBwd90Keys, kQueries>& to) {
    const int row = opaque(64 * warpgroup_ + thread_row());
#pragma unroll
    for (int k = 0; k < kQueries / 16; ++k) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        unsigned char* const chunk = to.chunk(row + e % 2 * 8, 2 * k + e / 2);
        *reinterpret_cast<uint32_t*>(chunk + 2 * thread_column()) = ds_[k][e];
      }
    }
    fence_proxy_async();
  }

  // The warpgroup's [64, 64] of dQ = dS K, under way.
  __device__ __forceinline__ void issue_dq(float (&dq)[32],
                                           const BoxedTile<kBwd90Keys, kQueries>& ds) {
    // Of heads of 96 the second box of K is half zeros, and so is its share of dQ.
    discard(dq);
    wgmma_fence(dq);
#pragma unroll
    for (int k = 0; k < kBwd90Keys; k += 16) {
      wgmma<T, 64>(dq, ds.by_columns(kHeadSize == 64 ? warpgroup_ : 0, k),
                   shared_.k.by_columns(kHeadSize == 64 ? 0 : warpgroup_, k), k > 0);
    }
    wgmma_commit();
  }
  // A warp's share is on end in the sums too, in fragments of 8 columns.
  __device__ __forceinline__ void add_dq(const float (&dq)[32], int64_t first_row) {
    const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
    float* const staging = shared_.dq[warp];
    if (lane_id() == 0) bulk_wait_read<0>();
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 32; ++i) staging[i * kWarpSize + lane_id()] = dq[i];
    fence_proxy_async();
    __syncwarp();
    if (lane_id() > 0) return;
    const int64_t row = first_row + (kHeadSize == 64 ? 64 * warpgroup_ : 0) + 16 * warp_in_group();
    const int column = kHeadSize == 64 ? 0 : 64 * warpgroup_;
    const int columns = std::min(64, kHeadSize - column);
    bulk_add(params_.problem.dq_sums + row * kHeadSize + 16 * column, staging,
             16 * columns * static_cast<int>(sizeof(float)));
    bulk_commit();
  }

  // All lanes have read what is in a stage.
  __device__ __forceinline__ void release(int stage) {
    __syncwarp();
    if (lane_id() == 0) mbarrier_arrive(shared_.empty[stage]);
  }
  template <bool kHasNext>
  __device__ __forceinline__ void go_on() {
    place_.next();
    if constexpr (kHasNext) issue_scores();
  }

  // One tile of queries, of which those in [unmasked, unmasked_end) see all keys; its S^T is in
  // scores_, and so will be that of the next one, if there is one. Nothing is under way where
  // the loop closes: ptxas puts a wait behind every product of a loop that another pass of it
  // waits for.
  template <bool kHasNext>
  __device__ __forceinline__ void advance(int turn, int unmasked, int unmasked_end) {
    const auto& stage = shared_.stages[place_.stage];
    const bool masked = stage.query < unmasked || stage.query + kQueries > unmasked_end;
    issue_dp();
    if constexpr (kCapped) cap_scores(scores_, params_.problem);
    exponentiate(stage.lse2);
    if (masked) mask_queries(scores_, first_query_, end_query_, stage.query);
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      issue_dv(part);
      if (part == 0) wgmma_wait<1>(dp_);
      if constexpr (kCapped) cap_gradients(stage.delta, stage.lse2, part);
      differentiate(stage.delta, part);
      if (masked) {  // 0 times infinity is no 0
        mask_queries(dp_, first_query_, end_query_, stage.query, part * kPartBlocks, kPartBlocks);
      }
      round_to_operands<T>(dp_, ds_, part * kPartOperands, kPartOperands);
    }
    if constexpr (kWithDq) {
      put_ds(shared_.ds[turn]);
      issue_sum<T>(dk_, ds_, stage.q);
      // dS is complete; and everybody has read that of the step before, whose place is the next's.
      barrier_sync(1, kConsumerThreads);
      float dq[32];
      issue_dq(dq, shared_.ds[turn]);
      const int64_t row = stage.row;
      wgmma_wait<1>(dv_, dk_);
      release(place_.stage);
      go_on<kHasNext>();
      wgmma_wait<kHasNext ? 1 : 0>(dq);
      add_dq(dq, row);
    } else {
      issue_sum<T>(dk_, ds_, stage.q);
      wgmma_wait<1>(dv_);
      const int done = place_.stage;
      go_on<kHasNext>();
      wgmma_wait<kHasNext ? 1 : 0>(dk_);
      release(done);
    }
    if constexpr (kHasNext) wgmma_wait<0>(scores_);
  }

  __device__ __forceinline__ void store() {
    const AttentionParams& p = params_.problem;
    const KeyTile block = bwd90_keys_block(params_);
    const int first = block.key + 64 * warpgroup_, keys = static_cast<int>(p.keys);
    barrier_sync(1, kConsumerThreads);  // nobody reads K and V any more
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
  int first_query_[2], end_query_[2];  // that see the thread's keys
  RingPlace<kBwd90Stages> place_;
  float dk_[kHeadSize / 2], dv_[kHeadSize / 2];
  float scores_[kQueries / 2], dp_[kQueries / 2];
  uint32_t probabilities_[kQueries / 16][4], ds_[kQueries / 16][4];
};

// ---- The kernel ----

template <typename T, int kHeadSize, bool kWithDq, bool kCapped>
__global__ void __launch_bounds__(kBwd90Threads, 1)
    attention90_bwd_keys_kernel(const __grid_constant__ Bwd90Params params) {
  using Shared = Bwd90KeysShared<kHeadSize>;
  Shared& shared = *dynamic_shared<Shared>();
  if (threadIdx.x == 0) {
    params.prefetch_maps();
    mbarrier_init(shared.kv_full, 2);  // K and V
    mbarrier_init(shared.patch, 1);
    for (int i = 0; i < kBwd90Stages; ++i) {
      mbarrier_init(shared.q_full[i], 2);  // a tile and its numbers
      mbarrier_init(shared.dout_full[i], 2);
      mbarrier_init(shared.empty[i], kBwd90Consumers * kWarpgroupSize / kWarpSize);
    }
    fence_mbarrier_init();
  }
  __syncthreads();
  await_previous_grid();

  const int warpgroup = uniform(static_cast<int>(threadIdx.x) / kWarpgroupSize);
  if (warpgroup == kBwd90Consumers) {
    shrink_registers<kBwd90ProducerRegisters>();
    if (warp_in_group() == 0) load_bwd90_keys<kHeadSize>(params, shared);
  } else {
    grow_registers<kBwd90ConsumerRegisters>();
    Bwd90KeysConsumer<T, kHeadSize, kWithDq, kCapped>(params, shared, warpgroup).run();
  }
}

template <typename T, int kHeadSize>
void launch_attention90_bwd_keys_kernel(const Exec& exec, const AttentionParams& p) {
  using Shared = Bwd90KeysShared<kHeadSize>;
  const auto params = bwd90_params<Shared::kQueries, kBwd90Keys>(p, order_by_keys(p, kBwd90Keys));
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
