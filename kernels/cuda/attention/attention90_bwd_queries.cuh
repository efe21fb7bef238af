#pragma once

// Computes dQ without atomics, like forward but with a third matmul. A block owns 128 queries, 64
// per warpgroup. One warp loads the key tiles that these queries see, one after another. Per tile
//
//   S = Q K^T    P = exp(S - lse)    dP = dO V^T    dS = P (dP - delta)    dQ += dS K
//
// all in registers except the operands from memory.

#include "shale/kernels/cuda/attention/attention90_bwd.cuh"

namespace shale::kernels::SHALE_BACKEND {

template <int kHeadSize>
struct Bwd90QueriesShared {
  static constexpr int kKeys = bwd90_keys_of_queries(kHeadSize);

  BoxedTile<kBwd90TileQueries, kHeadSize> q, dout;  // Q and dO; finally q has dQ
  BoxedTile<kKeys, kHeadSize> k[kBwd90Stages], v[kBwd90Stages];
  MBarrier q_full, patch, k_full[kBwd90Stages], v_full[kBwd90Stages], empty[kBwd90Stages];
  uint32_t settled[kBwd90Consumers * kWarpgroupSize];
};

// Returns the tile that a block owns. Callers recompute it where they need it, to save registers.
__device__ __forceinline__ QueryTile<> bwd90_queries_block(const Bwd90Params& params) {
  const AttentionParams& p = params.problem;
  return QueryTile<>(p, block_place(params.order, p.heads), kBwd90TileQueries);
}

template <int kHeadSize>
__device__ __forceinline__ void load_bwd90_queries(const Bwd90Params& params,
                                                   Bwd90QueriesShared<kHeadSize>& shared) {
  constexpr int kKeys = bwd90_keys_of_queries(kHeadSize);
  const AttentionParams& p = params.problem;
  const QueryTile<> block = bwd90_queries_block(params);
  const int first_step = block.first_step(kKeys), end_step = block.end_step(kKeys);
  if (first_step == end_step) return;
  const int batch = block.place.batch;
  // Rows beyond the sequence's end only affect their own rows of dQ, which become zeros.
  const RowRange queries = {block.query, static_cast<int>(p.queries), static_cast<int>(p.queries),
                            block.place.head, batch};
  TileLoader loader(shared.patch);
  loader.load(shared.q, params.q, shared.q_full, queries);
  loader.load(shared.dout, params.dout, shared.q_full, queries);
  RingPlace<kBwd90Stages> place;
  for (int step = end_step - 1; step >= first_step; --step, place.next()) {
    const RowRange keys = {step * kKeys, block.sequence.keys, static_cast<int>(p.keys),
                           block.kv_head, batch};
    if (lane_id() == 0) mbarrier_wait(shared.empty[place.stage], place.parity ^ 1);
    loader.load(shared.k[place.stage], params.k, shared.k_full[place.stage], keys);
    loader.load(shared.v[place.stage], params.v, shared.v_full[place.stage], keys);
  }
}

// ---- The computing warpgroups ----

// kCapped: the problem has a softcap.
template <typename T, int kHeadSize, bool kCapped>
class Bwd90QueriesConsumer {
  using Shared = Bwd90QueriesShared<kHeadSize>;
  static constexpr int kKeys = Shared::kKeys;

 public:
  __device__ __forceinline__ Bwd90QueriesConsumer(const Bwd90Params& params, Shared& shared,
                                                  int warpgroup)
      : params_(params), shared_(shared), warpgroup_(warpgroup) {}

  __device__ __forceinline__ void run() {
    const AttentionParams& p = params_.problem;
    const QueryTile<> block = bwd90_queries_block(params_);
    const int first_step = uniform(block.first_step(kKeys));
    const int end_step = uniform(block.end_step(kKeys));
    const int first_query = block.query + 64 * warpgroup_, query = first_query + thread_row();
    set_zero(dq_);
    if (first_step < end_step) {
      const int64_t row =
          (int64_t{block.place.batch} * p.heads + block.place.head) * p.padded_queries + query;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        lse2_[half] = p.lse2[row + 8 * half];
        delta_[half] = p.delta[row + 8 * half];
      }
      // A key that the first and the last query of the warpgroup see is seen by all its queries.
      const int unmasked = std::max(block.sequence.visible_keys(first_query), 0);
      const int unmasked_from = block.sequence.first_key(first_query + 63);
      mbarrier_wait(shared_.q_full, 0);
      for (int step = end_step - 1; step >= first_step; --step) {
        const bool masked = (step + 1) * kKeys > unmasked || step * kKeys < unmasked_from;
        advance(block.sequence, masked, query, step * kKeys);
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      // Inputs in rows beyond the sequence's end are arbitrary, even NaN.
      const bool valid = query + 8 * half < block.sequence.queries;
#pragma unroll
      for (int i = 2 * half; i < kHeadSize / 2; i += 4) {
        dq_[i] = valid ? dq_[i] * p.scale : 0.f;
        dq_[i + 1] = valid ? dq_[i + 1] * p.scale : 0.f;
      }
    }
    store_rows(dq_, shared_.q, 64 * warpgroup_,
               head_rows<T>(p.dq, block.place.batch, block.place.head), p.dq.row_stride,
               first_query, static_cast<int>(p.queries));
  }

 private:
  // Issues the matmuls of S and dP.
  __device__ __forceinline__ void issue_scores() {
    const int row = 64 * warpgroup_;
    mbarrier_wait(shared_.k_full[place_.stage], place_.parity);
    issue_product<T>(scores_, shared_.q, row, shared_.k[place_.stage]);
    mbarrier_wait(shared_.v_full[place_.stage], place_.parity);
    issue_product<T>(dp_, shared_.dout, row, shared_.v[place_.stage]);
  }

  // Processes one tile of keys, from `key` on.
  __device__ __forceinline__ void advance(const Sequence& sequence, bool masked, int query,
                                          int key) {
    issue_scores();
    wgmma_wait<1>(scores_);
    if constexpr (kCapped) cap_scores(scores_, params_.problem);
#pragma unroll
    for (int i = 0; i < kKeys / 2; ++i) {
      scores_[i] = fast_exp2(fmaf(scores_[i], params_.problem.scale_log2, -lse2_[i / 2 % 2]));
    }
    settle(shared_.settled, all_bits(scores_));
    wgmma_wait<0>(dp_);
    if constexpr (kCapped) {
#pragma unroll
      for (int i = 0; i < kKeys / 2; ++i) {
        const float slope = slope_of(scores_[i], lse2_[i / 2 % 2], params_.problem);
        dp_[i] = capped_gradient(dp_[i], delta_[i / 2 % 2], slope);
      }
    }
#pragma unroll
    for (int i = 0; i < kKeys / 2; ++i) dp_[i] = scores_[i] * (dp_[i] - delta_[i / 2 % 2]);
    if (masked) mask_keys(dp_, sequence, query, key, 0.f);
    round_to_operands<T>(dp_, ds_);
    issue_sum<T>(dq_, ds_, shared_.k[place_.stage]);
    wgmma_wait<0>(dq_);
    if (lane_id() == 0) mbarrier_arrive(shared_.empty[place_.stage]);
    place_.next();
  }

  const Bwd90Params& params_;
  Shared& shared_;
  int warpgroup_;
  RingPlace<kBwd90Stages> place_;
  float lse2_[2], delta_[2];
  float dq_[kHeadSize / 2], scores_[kKeys / 2], dp_[kKeys / 2];
  uint32_t ds_[kKeys / 16][4];
};

// ---- The kernel ----

template <typename T, int kHeadSize, bool kCapped>
__global__ void __launch_bounds__(kBwd90Threads, 1)
    attention90_bwd_queries_kernel(const __grid_constant__ Bwd90Params params) {
  using Shared = Bwd90QueriesShared<kHeadSize>;
  Shared& shared = *dynamic_shared<Shared>();
  if (threadIdx.x == 0) {
    params.prefetch_maps();
    mbarrier_init(shared.q_full, 2);  // two loads: Q and dO
    mbarrier_init(shared.patch, 1);
    for (int i = 0; i < kBwd90Stages; ++i) {
      mbarrier_init(shared.k_full[i], 1);
      mbarrier_init(shared.v_full[i], 1);
      mbarrier_init(shared.empty[i], kBwd90Consumers * kWarpgroupSize / kWarpSize);
    }
    fence_mbarrier_init();
  }
  __syncthreads();
  await_previous_grid();

  const int warpgroup = uniform(static_cast<int>(threadIdx.x) / kWarpgroupSize);
  if (warpgroup == kBwd90Consumers) {
    shrink_registers<kBwd90ProducerRegisters>();
    if (warp_in_group() == 0) load_bwd90_queries<kHeadSize>(params, shared);
  } else {
    grow_registers<kBwd90ConsumerRegisters>();
    Bwd90QueriesConsumer<T, kHeadSize, kCapped>(params, shared, warpgroup).run();
  }
}

template <typename T, int kHeadSize>
void launch_attention90_bwd_queries_kernel(const Exec& exec, const AttentionParams& p) {
  using Shared = Bwd90QueriesShared<kHeadSize>;
  const auto params =
      bwd90_params<kBwd90TileQueries, Shared::kKeys>(p, order_by_queries(p, kBwd90TileQueries));
  const auto kernel = p.softcap > 0 ? attention90_bwd_queries_kernel<T, kHeadSize, true>
                                    : attention90_bwd_queries_kernel<T, kHeadSize, false>;
  simt::launch(
      kernel, {.grid = params.order.blocks(), .block = kBwd90Threads, .smem_bytes = sizeof(Shared)},
      exec, params);
}

template <typename T>
void launch_attention90_bwd_queries(const Exec& exec, const AttentionParams& p) {
  with_bwd90_head_size(p.head_size, [&]<int kHeadSize>() {
    launch_attention90_bwd_queries_kernel<T, kHeadSize>(exec, p);
  });
}

}  // namespace shale::kernels::SHALE_BACKEND
