#pragma once

// Attention forward for 16-bit inputs, after FlashAttention-2 (arXiv:2307.08691, algorithm 1).
//
// A block owns a tile of queries of one head, with 16 or 32 per warp; O and the scores are in
// registers. K and V have one tile each in shared memory: V is loaded while scores are computed,
// and the next K while the values are added. Another block of the same SM computes while this one
// waits. Tiles of keys are processed from the last to the first: only the first few, at the
// diagonal and the ragged end, are masked.

#include "shale/base/error.h"
#include "shale/kernels/cuda/attention/attention_config.h"
#include "shale/kernels/cuda/attention/attention_mma.cuh"
#include "shale/kernels/cuda/attention/attention_sequence.cuh"
#include "shale/kernels/cuda/attention/attention_softcap.cuh"

namespace shale::kernels::SHALE_BACKEND {

template <typename T, int kHeadSize, AttentionTile kTile>
struct FwdTiles {
  static constexpr FwdConfig kConfig = fwd_config(kTile);
  static constexpr int kThreads = kConfig.warps * 32;
  // Tiles of 16 rows per warp.
  static constexpr int kRowTiles = kConfig.queries / (16 * kConfig.warps);

  Tile<T, kConfig.queries, kHeadSize> q;  // Q; finally out
  Tile<T, kConfig.keys, kHeadSize> k, v;
};

template <typename T, int kHeadSize>
struct FwdFamily {
  template <Room kRoom>
  using Tiles = FwdTiles<T, kHeadSize, fwd_tile(kHeadSize, kRoom)>;
};

// Online softmax, in units of log2. Lane 4 g + t has parts of rows g and g + 8 of each fragment;
// the three other lanes of group g have the other columns. The sums of these lanes are combined at
// the end.
template <int kRowTiles>
struct OnlineSoftmax {
  float maximum[kRowTiles][2], sum[kRowTiles][2];

  __device__ __forceinline__ OnlineSoftmax() {
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) maximum[i][half] = -kInfinity, sum[i][half] = 0.f;
    }
  }

  // Computes probabilities = 2^(scale * scores - maximum) with the new maximum, and rescales `out`
  // to it. `out` is the sum of earlier probabilities times values.
  template <typename T, int kDepthTiles, int kOutTiles>
  __device__ __forceinline__ void add(const float (&scores)[kRowTiles][2 * kDepthTiles][4],
                                      float scale,
                                      uint32_t (&probabilities)[kRowTiles][kDepthTiles][4],
                                      float (&out)[kRowTiles][kOutTiles][4]) {
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
      float shift[2];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float largest = -kInfinity;
#pragma unroll
        for (int j = 0; j < 2 * kDepthTiles; ++j) {
          largest = fmaxf(largest, fmaxf(scores[i][j][2 * half], scores[i][j][2 * half + 1]));
        }
        largest = fmaxf(maximum[i][half], warp_max<4>(largest) * scale);
        // The maximum of a row that has seen no key is -inf; subtracting it from -inf would give
        // NaN.
        shift[half] = largest == -kInfinity ? 0.f : largest;
        const float rescale = fast_exp2(maximum[i][half] - shift[half]);
        maximum[i][half] = largest;
        sum[i][half] *= rescale;
#pragma unroll
        for (int j = 0; j < kOutTiles; ++j) {
          out[i][j][2 * half] *= rescale;
          out[i][j][2 * half + 1] *= rescale;
        }
      }
      // Two adjacent accumulators form one fragment of a left operand without a shuffle.
#pragma unroll
      for (int k = 0; k < kDepthTiles; ++k) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int half = e % 2;
          const float(&pair)[4] = scores[i][2 * k + e / 2];
          const float first = fast_exp2(fmaf(pair[2 * half], scale, -shift[half]));
          const float second = fast_exp2(fmaf(pair[2 * half + 1], scale, -shift[half]));
          sum[i][half] += first + second;
          probabilities[i][k][e] = pack_pair<T>(first, second);
        }
      }
    }
  }
};

// Sets scores to -inf for pairs that the mask hides: rows are queries from `query` on, columns keys
// from `key` on.
template <int kRowTiles, int kColumnTiles>
__device__ __forceinline__ void mask_scores(float (&scores)[kRowTiles][kColumnTiles][4],
                                            const Sequence& sequence, int query, int key) {
#pragma unroll
  for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int row = query + 16 * i + fragment_row(e);
      const int visible = sequence.visible_keys(row) - key, first = sequence.first_key(row) - key;
#pragma unroll
      for (int j = 0; j < kColumnTiles; ++j) {
        const int column = 8 * j + fragment_column(e);
        if (column >= visible || column < first) scores[i][j][e] = -kInfinity;
      }
    }
  }
}

// Stores out = sums / softmax sum, lse = ln of the softmax sum; rows that see no key get 0 and
// -inf.
template <int kRowTiles, int kOutTiles>
__device__ __forceinline__ void finish_rows(const AttentionParams& p, const BlockPlace& place,
                                            int query, const OnlineSoftmax<kRowTiles>& softmax,
                                            float (&out)[kRowTiles][kOutTiles][4]) {
  constexpr float kLn2 = 0.693147181f;
  const Sequence sequence(p, place.batch);
  float* lse = p.lse + place.batch * p.lse_batch_stride + place.head * p.lse_head_stride;
#pragma unroll
  for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = query + 16 * i + fragment_row(2 * half);
      const float sum = warp_sum<4>(softmax.sum[i][half]);
      const bool saw_keys = row < sequence.queries && sum != 0.f;  // also true if sum is NaN
      const float factor = saw_keys ? fast_rcp(sum) : 0.f;
#pragma unroll
      for (int j = 0; j < kOutTiles; ++j) {
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; ++e) {
          out[i][j][e] *= factor;
        }
      }
      if (row < p.queries && lane_id() % 4 == 0) {
        lse[row * p.lse_row_stride] =
            saw_keys ? (softmax.maximum[i][half] + log2f(sum)) * kLn2 : -kInfinity;
      }
    }
  }
}

// kLists: true if attention is block-sparse; iterating over BlockLists costs registers.
template <typename T, int kHeadSize, AttentionTile kTile, bool kLists>
__global__ void __launch_bounds__(FwdTiles<T, kHeadSize, kTile>::kThreads)
    attention_fwd_kernel(const __grid_constant__ AttentionParams p,
                         const __grid_constant__ BlockOrder order) {
  await_previous_grid();
  using Tiles = FwdTiles<T, kHeadSize, kTile>;
  constexpr int kQueries = Tiles::kConfig.queries, kKeys = Tiles::kConfig.keys;
  constexpr int kRowTiles = Tiles::kRowTiles, kThreads = Tiles::kThreads;
  Tiles& tiles = *dynamic_shared<Tiles>();
  const QueryTile<kLists> block(p, block_place(order, p.heads), kQueries);
  const BlockPlace& place = block.place;
  const Sequence& sequence = block.sequence;
  const int head_size = static_cast<int>(p.head_size);

  const int warp_row = static_cast<int>(threadIdx.x) / kWarpSize * 16 * kRowTiles;
  const int query = block.query + warp_row, end_step = block.end_step(kKeys);
  const auto first_step = [&] {
    return block.tiles(kKeys).steps_before(sequence.first_key(opaque(block.query)) / kKeys);
  };

  // The function recomputes pointers and the first step in each call, to save registers.
  const auto copy_keys = [&](auto& tile, const HeadView& view, int step) {
    const T* rows = head_rows<const T>(view, opaque(place.batch), opaque(block.kv_head));
    copy_tile_async<kThreads>(tile, rows, view.row_stride, block.key_of(step, kKeys), sequence.keys,
                              head_size);
    cp_async_commit();
  };
  if (first_step() < end_step) {
    copy_tile_async<kThreads>(tiles.q, head_rows<const T>(p.q, place.batch, place.head),
                              p.q.row_stride, block.query, sequence.queries, head_size);
    copy_keys(tiles.k, p.k, end_step - 1);
  }

  Accumulators<kRowTiles, kHeadSize / 8> out;
  set_zero(out);
  OnlineSoftmax<kRowTiles> softmax;
  for (int step = end_step - 1; step >= first_step(); --step) {
    cp_async_wait<0>();
    __syncthreads();  // K (at first also Q) has arrived; all warps have read V
    copy_keys(tiles.v, p.v, step);
    Accumulators<kRowTiles, kKeys / 8> scores;
    set_zero(scores);
    multiply_rows<T>(scores, tiles.q, warp_row, tiles.k, 0);
    if (p.softcap > 0) cap_scores(scores, p);

    cp_async_wait<0>();
    __syncthreads();  // V has arrived; all warps have read K
    if (step > first_step()) copy_keys(tiles.k, p.k, step - 1);
    // A key that the first and the last query of the warp see is seen by all its queries.
    const int key = block.key_of(step, kKeys);
    if (key + kKeys > sequence.visible_keys(query) ||
        key < sequence.first_key(opaque(query) + 16 * kRowTiles - 1)) {
      mask_scores(scores, sequence, query, key);
    }
    Fragments<kRowTiles, kKeys / 16> probabilities;
    softmax.template add<T>(scores, p.scale_log2, probabilities, out);
    multiply_fragments<T>(out, probabilities, tiles.v, 0, 0);
  }

  const BlockPlace end = block_place(order, p.heads);
  finish_rows(p, end, end.tile * kQueries + warp_row, softmax, out);
  __syncthreads();  // all warps have read Q
  put<T>(out, tiles.q, warp_row, 0);
  __syncthreads();
  store_tile<kThreads>(tiles.q, head_rows<T>(p.out, end.batch, end.head), p.out.row_stride,
                       end.tile * kQueries, static_cast<int>(p.queries), head_size);
}

template <typename T, int kHeadSize, AttentionTile kTile>
void launch_fwd_tile(const Exec& exec, const AttentionParams& params) {
  using Tiles = FwdTiles<T, kHeadSize, kTile>;
  const BlockOrder order = order_by_queries(params, Tiles::kConfig.queries);
  if (order.blocks() == 0) return;
  dispatch_lists(params, [&]<bool kLists>() {
    simt::launch(attention_fwd_kernel<T, kHeadSize, kTile, kLists>,
                 {.grid = order.blocks(), .block = Tiles::kThreads, .smem_bytes = sizeof(Tiles)},
                 exec, params, order);
  });
}

template <typename T>
void launch_attention_fwd(const Exec& exec, const AttentionParams& params) {
  dispatch_head_size(params.head_size, [&]<int kHeadSize>() {
    constexpr AttentionTile kUsual = fwd_tile(kHeadSize, Room::kUsual);
    if (params.tile == AttentionTile::kOfHeadSize || params.tile == kUsual) {
      return dispatch_room<FwdFamily<T, kHeadSize>>(exec, [&]<Room kRoom>() {
        launch_fwd_tile<T, kHeadSize, fwd_tile(kHeadSize, kRoom)>(exec, params);
      });
    }
    if constexpr (kHeadSize == 128) {
      if (params.tile == AttentionTile::k64x64) {
        return launch_fwd_tile<T, kHeadSize, AttentionTile::k64x64>(exec, params);
      }
    }
    const FwdConfig config = fwd_config(params.tile);
    throw UnavailableError(cat("attention_fwd: no kernel for heads of ", params.head_size,
                               " with tiles of ", config.queries, "x", config.keys));
  });
}

}  // namespace shale::kernels::SHALE_BACKEND
