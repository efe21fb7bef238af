#pragma once

// Shared by the kernels of dK and dV (attention90_bwd_keys.cuh, attention90_bwd_keys_wide.cuh):
// stages of queries, the warp that loads them, and functions for scores and their gradients, which
// have keys as rows and queries as columns.

#include "shale/kernels/cuda/attention/attention90_bwd.cuh"

namespace shale::kernels::SHALE_BACKEND {

// ---- Shared memory ----

// Data of a tile of queries of one head. Its Q and dO are in separate arrays.
template <int kQueries>
struct Bwd90Stage {
  alignas(16) float lse2[kQueries];
  alignas(16) float delta[kQueries];
  int64_t row;  // first query's row in AttentionParams::dq_sums
  int query;
};

struct Bwd90KeysBarriers {
  MBarrier kv_full, patch;
  MBarrier q_full[kBwd90Stages], dout_full[kBwd90Stages], empty[kBwd90Stages];

  // Initialises the barriers; called by one thread.
  __device__ __forceinline__ void init() {
    mbarrier_init(kv_full, 2);  // two loads: K and V
    mbarrier_init(patch, 1);
    for (int i = 0; i < kBwd90Stages; ++i) {
      mbarrier_init(q_full[i], 2);  // two loads: a tile of Q or dO, and its lse2 or delta
      mbarrier_init(dout_full[i], 2);
      mbarrier_init(empty[i], kBwd90Consumers * kWarpgroupSize / kWarpSize);
    }
    fence_mbarrier_init();
  }
};

// Returns the tile that a block owns. Callers recompute it where they need it, to save registers.
template <int kKeys>
__device__ __forceinline__ KeyTile bwd90_keys_block(const Bwd90Params& params) {
  const AttentionParams& p = params.problem;
  return KeyTile(p, block_place(params.order, p.kv_heads), kKeys);
}

// ---- The loading warp ----

// Loads K, V and the stages with Q and dO into `shared`, which also has the barriers.
template <class Shared>
__device__ __forceinline__ void load_bwd90_keys(const Bwd90Params& params, Shared& shared) {
  constexpr int kKeys = Shared::kKeys, kQueries = Shared::kQueries;
  const AttentionParams& p = params.problem;
  Bwd90KeysBarriers& barriers = shared.barriers;
  const KeyTile block = bwd90_keys_block<kKeys>(params);
  const int batch = block.place.batch;
  TileLoader loader(barriers.patch);
  QueryStep<kKeys, kQueries> next(block.sequence, block.key, block.place.head * block.group);
  const int steps = next.count(block.group);
  if (steps == 0) return;
  const RowRange keys = {block.key, block.sequence.keys, static_cast<int>(p.keys), block.place.head,
                         batch};
  loader.load(shared.k, params.k, barriers.kv_full, keys);
  loader.load(shared.v, params.v, barriers.kv_full, keys);
  RingPlace<kBwd90Stages> place;
  for (int step = 0; step < steps; ++step, next.advance(), place.next()) {
    auto& stage = shared.stages[place.stage];
    MBarrier &q_full = barriers.q_full[place.stage], &dout_full = barriers.dout_full[place.stage];
    const int query = next.query();
    const RowRange rows = {query, block.sequence.queries, static_cast<int>(p.queries), next.head,
                           batch};
    if (lane_id() == 0) {
      mbarrier_wait(barriers.empty[place.stage], place.parity ^ 1);
      const int64_t row = (batch * p.heads + next.head) * p.padded_queries + query;
      stage.row = row;
      stage.query = query;
      constexpr int kBytes = kQueries * static_cast<int>(sizeof(float));
      mbarrier_arrive_expect(q_full, kBytes);
      bulk_load(stage.lse2, p.lse2 + row, kBytes, q_full);
      mbarrier_arrive_expect(dout_full, kBytes);
      bulk_load(stage.delta, p.delta + row, kBytes, dout_full);
    }
    loader.load(shared.q[place.stage], params.q, q_full, rows);
    loader.load(shared.dout[place.stage], params.dout, dout_full, rows);
  }
}

// ---- The computing warpgroups ----

// The queries that see a warpgroup's keys. Its 64 rows of scores start with key `first_key`.
struct Bwd90KeyRows {
  int first_query[2], end_query[2];  // queries that see the thread's two keys
  int unmasked, unmasked_end;        // queries [unmasked, unmasked_end) see all keys

  __device__ __forceinline__ void set(const Sequence& sequence, int first_key) {
    // The warpgroup's last key has the latest first query, and its first key has the earliest end.
    unmasked = sequence.first_query(first_key + kWarpgroupSize / 2 - 1);
    unmasked_end = sequence.end_query(first_key);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int key = first_key + thread_row() + 8 * half;
      first_query[half] = sequence.first_query(key);
      end_query[half] = sequence.end_query(key);
    }
  }
  // Returns whether one of `queries` queries from `query` on does not see all the warpgroup's keys.
  __device__ __forceinline__ bool masks(int query, int queries) const {
    return query < unmasked || query + queries > unmasked_end;
  }
  // Zeroes the elements of masked (query, key) pairs, see mask_queries().
  template <int kCount>
  __device__ __forceinline__ void mask(float (&d)[kCount], int query, int block = 0,
                                       int blocks = kCount / 4) const {
    mask_queries(d, first_query, end_query, query, block, blocks);
  }
};

// Replaces S^T by P^T. lse2 points to the value of the first query.
template <int kCount>
__device__ __forceinline__ void exponentiate(float (&scores)[kCount], const float* lse2,
                                             const AttentionParams& p) {
  lse2 += opaque(thread_column());
#pragma unroll
  for (int j = 0; j < kCount / 4; ++j) {
    const auto shift = load_floats<2>(lse2 + 8 * j);
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      float& value = scores[4 * j + e];
      value = fast_exp2(fmaf(value, p.scale_log2, -shift.at[e % 2]));
    }
  }
}
// Prepares `blocks` blocks of 8 columns of dP^T, from `block` on, for differentiate() when scores
// have a softcap.
template <int kCount>
__device__ __forceinline__ void cap_gradients(float (&dp)[kCount],
                                              const float (&probabilities)[kCount],
                                              const float* delta, const float* lse2,
                                              const AttentionParams& p, int block = 0,
                                              int blocks = kCount / 4) {
  delta += opaque(thread_column());
  lse2 += opaque(thread_column());
#pragma unroll
  for (int j = block; j < block + blocks; ++j) {
    const auto mean = load_floats<2>(delta + 8 * j), shift = load_floats<2>(lse2 + 8 * j);
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float slope = slope_of(probabilities[4 * j + e], shift.at[e % 2], p);
      dp[4 * j + e] = capped_gradient(dp[4 * j + e], mean.at[e % 2], slope);
    }
  }
}
// Replaces `blocks` blocks of 8 columns of dP^T by dS^T = P^T (dP^T - delta).
template <int kCount>
__device__ __forceinline__ void differentiate(float (&dp)[kCount],
                                              const float (&probabilities)[kCount],
                                              const float* delta, int block = 0,
                                              int blocks = kCount / 4) {
  delta += opaque(thread_column());
#pragma unroll
  for (int j = block; j < block + blocks; ++j) {
    const auto mean = load_floats<2>(delta + 8 * j);
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      float& value = dp[4 * j + e];
      value = probabilities[4 * j + e] * (value - mean.at[e % 2]);
    }
  }
}

// Writes P^T or dS^T to the warpgroup's rows of a tile, from `first_row` on, and to columns from 8
// * first_chunk on: two queries of a key at a time.
template <class TileT, int kOperands>
__device__ __forceinline__ void put_operands(const uint32_t (&operands)[kOperands][4], TileT& to,
                                             int first_row, int first_chunk) {
  const int row = opaque(first_row + thread_row());
#pragma unroll
  for (int k = 0; k < kOperands; ++k) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      unsigned char* const chunk = to.chunk(row + e % 2 * 8, first_chunk + 2 * k + e / 2);
      *reinterpret_cast<uint32_t*>(chunk + 2 * thread_column()) = operands[k][e];
    }
  }
  fence_proxy_async();
}

// Adds a part of a warp's 16 rows of dQ, the accumulators from dq[first] on, to
// AttentionParams::dq_sums. There the part is contiguous, in fragments of 8 columns. Its first
// `floats` numbers are added, by way of `staging`, which is one of kWays buffers that are used in
// rotation.
template <int kWays, int kCount, int kStaged>
__device__ __forceinline__ void add_fragments(const float (&dq)[kCount], int first,
                                              float (&staging)[kStaged], float* sums,
                                              int floats = kStaged) {
  if (lane_id() == 0) bulk_wait_read<kWays - 1>();
  __syncwarp();
#pragma unroll
  for (int i = 0; i < kStaged / kWarpSize; ++i) {
    staging[i * kWarpSize + lane_id()] = dq[first + i];
  }
  fence_proxy_async();
  __syncwarp();
  if (lane_id() > 0) return;
  bulk_add(sums, staging, floats * static_cast<int>(sizeof(float)));
  bulk_commit();
}

// Signals that all lanes have read a stage.
__device__ __forceinline__ void release_stage(MBarrier& empty) {
  __syncwarp();
  if (lane_id() == 0) mbarrier_arrive(empty);
}

}  // namespace shale::kernels::SHALE_BACKEND
