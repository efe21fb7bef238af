#pragma once

// Computes dK and dV for 16-bit inputs, and in the fast variant dQ (arXiv:2307.08691, algorithm 2).
//
// A block owns a tile of keys of one kv head and iterates over the queries of all heads of its
// group that see these keys, while the next tile of Q and dO is being loaded. It computes scores
// with keys as rows, S^T = K Q^T and dP^T = V dO^T, so that P^T and dS^T are in registers as left
// operands of dV = P^T dO and dK = dS^T Q. Only dS passes through shared memory, for dQ = dS K,
// which all blocks of a head add up in global memory.

#include "shale/kernels/cuda/attention/attention_config.h"
#include "shale/kernels/cuda/attention/attention_mma.cuh"
#include "shale/kernels/cuda/attention/attention_sequence.cuh"
#include "shale/kernels/cuda/attention/attention_softcap.cuh"

namespace shale::kernels::SHALE_BACKEND {

template <typename T, int kHeadSize, Room kRoom>
struct BwdKeysTiles {
  static constexpr BwdKeysConfig kConfig = bwd_keys_config(kHeadSize, kRoom);
  static constexpr int kThreads = kConfig.warps() * 32;
  // Numbers of a warp's fragments: along rows of scores, dK and dV (kRowTiles), along columns of
  // scores (kScoreTiles), and along columns of dK and dV (kHeadTiles).
  static constexpr int kRowTiles = kConfig.keys / (16 * kConfig.key_warps);
  static constexpr int kScoreTiles = kConfig.queries / (8 * kConfig.query_warps * kConfig.passes);
  static constexpr int kHeadTiles = kHeadSize / (8 * kConfig.head_warps);
  // Numbers of fragments in a warp's part of dQ.
  static constexpr int kDqColumnWarps = kConfig.warps() / kConfig.dq_row_warps;
  static constexpr int kDqRowTiles = kConfig.queries / (16 * kConfig.dq_row_warps);
  static constexpr int kDqColumnTiles = kHeadSize / (8 * kDqColumnWarps);

  Tile<T, kConfig.keys, kHeadSize> k, v;  // K and V; finally dK and dV
  struct Queries {
    Tile<T, kConfig.queries, kHeadSize> q, dout;
    float lse2[kConfig.queries], delta[kConfig.queries];
  } stages[2];
  Tile<T, kConfig.keys, kConfig.queries> ds;
};
template <typename T, int kHeadSize>
struct BwdKeysFamily {
  template <Room kRoom>
  using Tiles = BwdKeysTiles<T, kHeadSize, kRoom>;
};

// Replaces scores by P^T = 2^(scale * scores - lse2) and dp by dS^T = P^T (dP^T - delta), both 0
// where masked. Rows are keys from `key` on, columns queries from `query` on; lse2 and delta belong
// to the columns.
template <int kRowTiles, int kColumnTiles>
__device__ __forceinline__ void probabilities_and_gradients(
    float (&scores)[kRowTiles][kColumnTiles][4], float (&dp)[kRowTiles][kColumnTiles][4],
    const float* lse2, const float* delta, float scale, const Sequence& sequence, int query,
    int key) {
  // The last key has the latest first query, and the first key has the earliest end.
  const bool masked = query < sequence.first_query(key + 16 * kRowTiles - 1) ||
                      query + 8 * kColumnTiles > sequence.end_query(key);
#pragma unroll
  for (int j = 0; j < kColumnTiles; ++j) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int column = 8 * j + fragment_column(e);
      const float shift = lse2[column], mean = delta[column];
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i) {
        const float p = fast_exp2(fmaf(scores[i][j][e], scale, -shift));
        scores[i][j][e] = p;
        dp[i][j][e] = p * (dp[i][j][e] - mean);
      }
    }
  }
  if (!masked) return;
#pragma unroll
  for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int row = key + 16 * i + fragment_row(e);
      const int first = sequence.first_query(row) - query, end = sequence.end_query(row) - query;
#pragma unroll
      for (int j = 0; j < kColumnTiles; ++j) {
        const int column = 8 * j + fragment_column(e);
        if (column < first || column >= end) scores[i][j][e] = dp[i][j][e] = 0.f;
      }
    }
  }
}

// Applies the softcap to scores and dp; called before probabilities_and_gradients().
template <int kRowTiles, int kColumnTiles>
__device__ __forceinline__ void cap_by_columns(float (&scores)[kRowTiles][kColumnTiles][4],
                                               float (&dp)[kRowTiles][kColumnTiles][4],
                                               const float* delta, const AttentionParams& p) {
  cap_scores(scores, p);
#pragma unroll
  for (int j = 0; j < kColumnTiles; ++j) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float mean = delta[8 * j + fragment_column(e)];
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i) {
        dp[i][j][e] = capped_gradient(dp[i][j][e], mean, slope_of(scores[i][j][e], p));
      }
    }
  }
}

// Stores left operands to a tile without conversion; `column` is a multiple of their width.
template <int kRowTiles, int kDepthTiles, class TileT>
__device__ __forceinline__ void put_fragments(const uint32_t (&a)[kRowTiles][kDepthTiles][4],
                                              TileT& tile, int row, int column) {
  const int lane = lane_id();
  const Columns<TileT, 2 * kDepthTiles> columns(
      opaque(TileT::offset(row + lane / 4, 0) + lane % 4 * 4), column / 8);
#pragma unroll
  for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
    for (int k = 0; k < kDepthTiles; ++k) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int offset = columns(2 * k + e / 2) + (16 * i + e % 2 * 8) * TileT::kRowBytes;
        *reinterpret_cast<uint32_t*>(tile.at(offset)) = a[i][k][e];
      }
    }
  }
}

// Adds a warp's part of a tile of dQ to the sums in global memory (AttentionParams::dq_sums).
template <int kHeadSize, int kRowTiles, int kColumnTiles>
__device__ __forceinline__ void add_to_sums(const float (&dq)[kRowTiles][kColumnTiles][4],
                                            float* sums, int row, int column) {
#pragma unroll
  for (int i = 0; i < kRowTiles; ++i) {
    float* target = sums + (row + 16 * i) * kHeadSize + column * 16 + lane_id();
#pragma unroll
    for (int j = 0; j < kColumnTiles; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) atomic_add(target + (4 * j + e) * kWarpSize, dq[i][j][e]);
    }
  }
}

// Sums `mine` over the warps that own the same keys for different queries; the first of these warps
// gets the result. `memory` has a float for each accumulator of the other warps.
template <int kWarps, int kSharers, int kRowTiles, int kColumnTiles>
__device__ __forceinline__ void add_up(float (&mine)[kRowTiles][kColumnTiles][4], float* memory) {
  static_assert(kSharers == 2);
  constexpr int kStride = kWarps / kSharers * kWarpSize;
  const int thread = static_cast<int>(threadIdx.x) % kStride;
  const bool first = static_cast<int>(threadIdx.x) < kStride;
#pragma unroll
  for (int round = 0; round < 2; ++round) {
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
      for (int j = 0; j < kColumnTiles; ++j) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          float& theirs = memory[((i * kColumnTiles + j) * 4 + e) * kStride + thread];
          if (round == 0 && !first) theirs = mine[i][j][e];
          if (round == 1 && first) mine[i][j][e] += theirs;
        }
      }
    }
    __syncthreads();
  }
}

// Position of a warp's part in the tiles of scores, dK and dV, and of dQ.
template <class Tiles>
struct WarpPlace {
  int key_row, query_warp, head_warp, head_chunk, dq_row, dq_column;

  // Callers recompute this object where they need it, to save registers.
  __device__ __forceinline__ WarpPlace() {
    constexpr BwdKeysConfig kConfig = Tiles::kConfig;
    const int warp = opaque(static_cast<int>(threadIdx.x)) / kWarpSize;
    key_row = warp % kConfig.key_warps * 16 * Tiles::kRowTiles;
    query_warp = warp / kConfig.key_warps % kConfig.query_warps;
    head_warp = warp / (kConfig.key_warps * kConfig.query_warps);
    head_chunk = head_warp * Tiles::kHeadTiles;
    dq_row = warp % kConfig.dq_row_warps * 16 * Tiles::kDqRowTiles;
    dq_column = warp / kConfig.dq_row_warps * 8 * Tiles::kDqColumnTiles;
  }
};

// kLists: true if attention is block-sparse (BlockLists in kernels/attention.h).
template <typename T, int kHeadSize, bool kWithDq, Room kRoom, bool kLists>
__global__ void __launch_bounds__((BwdKeysTiles<T, kHeadSize, kRoom>::kThreads))
    attention_bwd_keys_kernel(const __grid_constant__ AttentionParams p,
                              const __grid_constant__ BlockOrder order) {
  await_previous_grid();
  using Tiles = BwdKeysTiles<T, kHeadSize, kRoom>;
  constexpr BwdKeysConfig kConfig = Tiles::kConfig;
  constexpr int kQueries = kConfig.queries, kKeys = kConfig.keys, kThreads = Tiles::kThreads;
  constexpr int kRowTiles = Tiles::kRowTiles, kScoreTiles = Tiles::kScoreTiles;
  Tiles& tiles = *dynamic_shared<Tiles>();
  const BlockPlace place = block_place(order, p.kv_heads);
  const int group = static_cast<int>(p.heads / p.kv_heads);
  const int head_size = static_cast<int>(p.head_size);
  const Sequence sequence(p, place.batch);
  const int block_key = place.tile * kKeys;
  QueryStep<kKeys, kQueries, kLists> next(sequence, block_key, place.head * group);
  const int steps = next.count(group);

  const auto copy_next_queries = [&](auto& stage) {
    const int query = next.query();
    copy_tile_async<kThreads>(stage.q, head_rows<const T>(p.q, place.batch, next.head),
                              p.q.row_stride, query, sequence.queries, head_size);
    copy_tile_async<kThreads>(stage.dout, head_rows<const T>(p.dout, place.batch, next.head),
                              p.dout.row_stride, query, sequence.queries, head_size);
    const int64_t row = (place.batch * p.heads + next.head) * p.padded_queries + query;
    const int at = static_cast<int>(threadIdx.x) * 4;
    if (at < kQueries) {
      cp_async<16>(stage.lse2 + at, p.lse2 + row + at);
      cp_async<16>(stage.delta + at, p.delta + row + at);
    }
    cp_async_commit();
  };
  if (steps > 0) {
    copy_tile_async<kThreads>(tiles.k, head_rows<const T>(p.k, place.batch, place.head),
                              p.k.row_stride, block_key, sequence.keys, head_size);
    copy_tile_async<kThreads>(tiles.v, head_rows<const T>(p.v, place.batch, place.head),
                              p.v.row_stride, block_key, sequence.keys, head_size);
    copy_next_queries(tiles.stages[0]);
  }

  Accumulators<kRowTiles, Tiles::kHeadTiles> dk, dv;
  set_zero(dk);
  set_zero(dv);
  for (int step = 0; step < steps; ++step) {
    cp_async_wait<0>();
    // This step's queries have arrived, and all warps have read the queries and dS of the step
    // before.
    __syncthreads();
    const int head = next.head, query = next.query();
    if (step + 1 < steps) {
      next.advance();
      copy_next_queries(tiles.stages[(step + 1) % 2]);
    }
    auto& stage = tiles.stages[step % 2];

    const WarpPlace<Tiles> warp;
#pragma unroll 1
    for (int pass = 0; pass < kConfig.passes; ++pass) {
      const int query_row = (warp.query_warp * kConfig.passes + pass) * 8 * kScoreTiles;
      Accumulators<kRowTiles, kScoreTiles> scores, dp;
      set_zero(scores);
      multiply_rows<T>(scores, tiles.k, warp.key_row, stage.q, query_row);
      set_zero(dp);
      multiply_rows<T>(dp, tiles.v, warp.key_row, stage.dout, query_row);
      if (p.softcap > 0) cap_by_columns(scores, dp, stage.delta + query_row, p);
      probabilities_and_gradients(scores, dp, stage.lse2 + query_row, stage.delta + query_row,
                                  p.scale_log2, sequence, query + query_row,
                                  block_key + warp.key_row);
      Fragments<kRowTiles, kScoreTiles / 2> probabilities, ds;
      round_to_fragments<T>(scores, probabilities);
      round_to_fragments<T>(dp, ds);
      if (kWithDq && warp.head_warp == 0) put_fragments(ds, tiles.ds, warp.key_row, query_row);
      multiply_fragments<T>(dv, probabilities, stage.dout, query_row, warp.head_chunk);
      multiply_fragments<T>(dk, ds, stage.q, query_row, warp.head_chunk);
    }

    if constexpr (kWithDq) {
      __syncthreads();  // waits until dS is complete
      Accumulators<Tiles::kDqRowTiles, Tiles::kDqColumnTiles> dq;
      set_zero(dq);
      multiply_columns<T>(dq, tiles.ds, warp.dq_row / 8, tiles.k, warp.dq_column / 8);
      const int64_t first_row = (place.batch * p.heads + head) * p.padded_queries + query;
      add_to_sums<kHeadSize>(dq, p.dq_sums + first_row * kHeadSize, warp.dq_row, warp.dq_column);
    }
  }

  __syncthreads();  // all warps have used the shared memory
  if constexpr (kConfig.query_warps > 1) {
    static_assert(sizeof(dk) * kThreads / kConfig.query_warps <= sizeof(Tiles));
    add_up<kConfig.warps(), kConfig.query_warps>(dk, dynamic_shared<float>());
    add_up<kConfig.warps(), kConfig.query_warps>(dv, dynamic_shared<float>());
  }
  const WarpPlace<Tiles> warp;
  if (warp.query_warp == 0) {
    scale_by(dk, p.scale);
    put<T>(dk, tiles.k, warp.key_row, 8 * warp.head_chunk);
    put<T>(dv, tiles.v, warp.key_row, 8 * warp.head_chunk);
  }
  __syncthreads();
  const BlockPlace end = block_place(order, p.kv_heads);
  const int keys = static_cast<int>(p.keys);
  store_tile<kThreads>(tiles.k, head_rows<T>(p.dk, end.batch, end.head), p.dk.row_stride,
                       end.tile * kKeys, keys, head_size);
  store_tile<kThreads>(tiles.v, head_rows<T>(p.dv, end.batch, end.head), p.dv.row_stride,
                       end.tile * kKeys, keys, head_size);
}

template <typename T>
void launch_attention_bwd_keys(const Exec& exec, const AttentionParams& params) {
  dispatch_head_size(params.head_size, [&]<int kHeadSize>() {
    dispatch_room<BwdKeysFamily<T, kHeadSize>>(exec, [&]<Room kRoom>() {
      using Tiles = BwdKeysTiles<T, kHeadSize, kRoom>;
      const BlockOrder order = order_by_keys(params, Tiles::kConfig.keys);
      if (order.blocks() == 0) return;
      dispatch_lists(params, [&]<bool kLists>() {
        const auto kernel = params.dq_sums != nullptr
                                ? attention_bwd_keys_kernel<T, kHeadSize, true, kRoom, kLists>
                                : attention_bwd_keys_kernel<T, kHeadSize, false, kRoom, kLists>;
        simt::launch(
            kernel, {.grid = order.blocks(), .block = Tiles::kThreads, .smem_bytes = sizeof(Tiles)},
            exec, params, order);
      });
    });
  });
}

}  // namespace shale::kernels::SHALE_BACKEND
