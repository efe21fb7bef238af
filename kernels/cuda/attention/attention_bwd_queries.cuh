#pragma once

// Computes dQ for 16-bit inputs without atomics. A block owns a tile of queries of one head, with
// 16 queries per warp, and iterates over the keys that these queries see, while the next tile is
// being loaded. P and dS stay in registers (arXiv:2307.08691, algorithm 2, with the loops
// exchanged).

#include "shale/kernels/cuda/attention/attention_config.h"
#include "shale/kernels/cuda/attention/attention_mma.cuh"
#include "shale/kernels/cuda/attention/attention_sequence.cuh"
#include "shale/kernels/cuda/attention/attention_softcap.cuh"

namespace shale::kernels::SHALE_BACKEND {

template <typename T, int kHeadSize, Room kRoom>
struct BwdQueriesTiles {
  static constexpr BwdQueriesConfig kConfig = bwd_queries_config(kHeadSize, kRoom);
  static constexpr int kThreads = kConfig.warps * 32;
  static_assert(kConfig.queries == 16 * kConfig.warps);

  Tile<T, kConfig.queries, kHeadSize> q, dout;  // Q and dO; at the end q has dQ
  struct Keys {
    Tile<T, kConfig.keys, kHeadSize> k, v;
  } stages[2];
};
template <typename T, int kHeadSize>
struct BwdQueriesFamily {
  template <Room kRoom>
  using Tiles = BwdQueriesTiles<T, kHeadSize, kRoom>;
};

// Replaces scores by dS = P (dO V^T - delta), with P = 2^(scale * scores - lse2); 0 where masked.
// Rows are queries from `query` on, columns keys from `key` on.
template <int kColumnTiles>
__device__ __forceinline__ void score_gradients(float (&scores)[1][kColumnTiles][4],
                                                const float (&dp)[1][kColumnTiles][4],
                                                const float (&lse2)[2], const float (&delta)[2],
                                                float scale, const Sequence& sequence, int query,
                                                int key) {
  const bool masked =
      key + 8 * kColumnTiles > sequence.visible_keys(query) || key < sequence.first_key(query + 15);
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    const int row = query + fragment_row(e), visible = sequence.visible_keys(row) - key;
    const int first = masked ? sequence.first_key(row) - key : 0;
#pragma unroll
    for (int j = 0; j < kColumnTiles; ++j) {
      const float p = fast_exp2(fmaf(scores[0][j][e], scale, -lse2[e / 2]));
      scores[0][j][e] = p * (dp[0][j][e] - delta[e / 2]);
      const int column = 8 * j + fragment_column(e);
      if (masked && (column >= visible || column < first)) scores[0][j][e] = 0.f;
    }
  }
}

// Applies the softcap to scores, and its derivative to dp. Call it before score_gradients().
template <int kColumnTiles>
__device__ __forceinline__ void cap_by_rows(float (&scores)[1][kColumnTiles][4],
                                            float (&dp)[1][kColumnTiles][4],
                                            const float (&delta)[2], const AttentionParams& p) {
  cap_scores(scores, p);
#pragma unroll
  for (int j = 0; j < kColumnTiles; ++j) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      dp[0][j][e] = capped_gradient(dp[0][j][e], delta[e / 2], slope_of(scores[0][j][e], p));
    }
  }
}

// kLists: true if attention is block-sparse (BlockLists in kernels/attention.h).
template <typename T, int kHeadSize, Room kRoom, bool kLists>
__global__ void __launch_bounds__((BwdQueriesTiles<T, kHeadSize, kRoom>::kThreads))
    attention_bwd_queries_kernel(const __grid_constant__ AttentionParams p,
                                 const __grid_constant__ BlockOrder order) {
  await_previous_grid();
  using Tiles = BwdQueriesTiles<T, kHeadSize, kRoom>;
  constexpr int kQueries = Tiles::kConfig.queries, kKeys = Tiles::kConfig.keys;
  constexpr int kThreads = Tiles::kThreads;
  Tiles& tiles = *dynamic_shared<Tiles>();
  const QueryTile<kLists> block(p, block_place(order, p.heads), kQueries);
  const BlockPlace& place = block.place;
  const Sequence& sequence = block.sequence;
  const int head_size = static_cast<int>(p.head_size);
  const T* k = head_rows<const T>(p.k, place.batch, block.kv_head);
  const T* v = head_rows<const T>(p.v, place.batch, block.kv_head);

  const int warp_row = static_cast<int>(threadIdx.x) / kWarpSize * 16;
  const int query = block.query + warp_row;
  const int first_step = block.first_step(kKeys), end_step = block.end_step(kKeys);

  const auto copy_keys = [&](int step) {
    auto& stage = tiles.stages[step % 2];
    const int key = block.key_of(step, kKeys);
    copy_tile_async<kThreads>(stage.k, k, p.k.row_stride, key, sequence.keys, head_size);
    copy_tile_async<kThreads>(stage.v, v, p.v.row_stride, key, sequence.keys, head_size);
    cp_async_commit();
  };
  if (first_step < end_step) {
    copy_tile_async<kThreads>(tiles.q, head_rows<const T>(p.q, place.batch, place.head),
                              p.q.row_stride, block.query, sequence.queries, head_size);
    copy_tile_async<kThreads>(tiles.dout, head_rows<const T>(p.dout, place.batch, place.head),
                              p.dout.row_stride, block.query, sequence.queries, head_size);
    copy_keys(first_step);
  }
  float lse2[2], delta[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int64_t row = (int64_t{place.batch} * p.heads + place.head) * p.padded_queries + query +
                        fragment_row(2 * half);
    lse2[half] = p.lse2[row];
    delta[half] = p.delta[row];
  }

  Accumulators<1, kHeadSize / 8> dq;
  set_zero(dq);
  for (int step = first_step; step < end_step; ++step) {
    cp_async_wait<0>();
    __syncthreads();  // this step's keys have arrived; all warps have read the previous ones
    if (step + 1 < end_step) copy_keys(step + 1);
    auto& stage = tiles.stages[step % 2];
    Accumulators<1, kKeys / 8> scores, dp;
    set_zero(scores);
    multiply_rows<T>(scores, tiles.q, warp_row, stage.k, 0);
    set_zero(dp);
    multiply_rows<T>(dp, tiles.dout, warp_row, stage.v, 0);
    if (p.softcap > 0) cap_by_rows(scores, dp, delta, p);
    score_gradients(scores, dp, lse2, delta, p.scale_log2, sequence, query,
                    block.key_of(step, kKeys));
    Fragments<1, kKeys / 16> ds;
    round_to_fragments<T>(scores, ds);
    multiply_fragments<T>(dq, ds, stage.k, 0, 0);
  }

  scale_by(dq, p.scale);
  __syncthreads();  // all warps have read Q
  put<T>(dq, tiles.q, warp_row, 0);
  __syncthreads();
  store_tile<kThreads>(tiles.q, head_rows<T>(p.dq, place.batch, place.head), p.dq.row_stride,
                       block.query, static_cast<int>(p.queries), head_size);
}

template <typename T>
void launch_attention_bwd_queries(const Exec& exec, const AttentionParams& params) {
  dispatch_head_size(params.head_size, [&]<int kHeadSize>() {
    dispatch_room<BwdQueriesFamily<T, kHeadSize>>(exec, [&]<Room kRoom>() {
      using Tiles = BwdQueriesTiles<T, kHeadSize, kRoom>;
      const BlockOrder order = order_by_queries(params, Tiles::kConfig.queries);
      if (order.blocks() == 0) return;
      dispatch_lists(params, [&]<bool kLists>() {
        simt::launch(
            attention_bwd_queries_kernel<T, kHeadSize, kRoom, kLists>,
            {.grid = order.blocks(), .block = Tiles::kThreads, .smem_bytes = sizeof(Tiles)}, exec,
            params, order);
      });
    });
  });
}

}  // namespace shale::kernels::SHALE_BACKEND
