// Attention in f32: the matmuls use FMAs, no tensor cores, and no atomics. 16 × 16 threads share a
// tile of scores: thread (x, y) has the rows y + 16 i and the columns x + 16 j. All matmul operands
// are in shared memory.

#include "shale/kernels/cuda/attention/attention_config.h"
#include "shale/kernels/cuda/attention/attention_sequence.cuh"
#include "shale/kernels/cuda/attention/attention_softcap.cuh"

namespace shale::kernels::SHALE_BACKEND {
namespace {

constexpr int kSide = 16, kThreads = kSide * kSide;

// Rows of kHeadSize floats in shared memory, with 4 floats of padding each, so that 16-byte packs
// of 8 neighbouring rows are in different banks.
template <int kHeadSize, int kRows>
struct Rows {
  static constexpr int kStride = kHeadSize + 4;
  alignas(16) float elements[kRows * kStride];

  __device__ __forceinline__ float* row(int index) { return elements + index * kStride; }
  __device__ __forceinline__ const float* row(int index) const {
    return elements + index * kStride;
  }
};

// Scores or values derived from scores, [rows][columns].
template <int kTile>
struct Scores {
  static constexpr int kStride = kTile + 1;
  float elements[kTile * kStride];

  __device__ __forceinline__ float& at(int row, int column) {
    return elements[row * kStride + column];
  }
};

__device__ __forceinline__ int thread_x() {
  return static_cast<int>(threadIdx.x) % kSide;
}
__device__ __forceinline__ int thread_y() {
  return static_cast<int>(threadIdx.x) / kSide;
}

// A head's rows in global memory.
struct HeadRows {
  float* first;
  int64_t stride;
  int columns;

  __device__ __forceinline__ HeadRows(const AttentionParams& p, const HeadView& view, int batch,
                                      int head)
      : first(head_rows<float>(view, batch, head)),
        stride(view.row_stride),
        columns(static_cast<int>(p.head_size)) {}
};

// Loads rows [begin, begin + kRows) of a head. Rows from `end` on and missing columns become zeros.
template <int kHeadSize, int kRows>
__device__ __forceinline__ void load_rows(Rows<kHeadSize, kRows>& tile, const HeadRows& from,
                                          int begin, int end) {
  for (int i = threadIdx.x; i < kRows * kHeadSize; i += kThreads) {
    const int row = i / kHeadSize, column = i % kHeadSize;
    const bool valid = begin + row < end && column < from.columns;
    tile.row(row)[column] = valid ? from.first[(begin + row) * from.stride + column] : 0.f;
  }
}

// Computes c[i][j] = dot product of a's row y + 16 i and b's row x + 16 j, for thread (x, y).
template <int kHeadSize, int kRows>
__device__ __forceinline__ void dot_rows(float (&c)[kRows / kSide][kRows / kSide],
                                         const Rows<kHeadSize, kRows>& a,
                                         const Rows<kHeadSize, kRows>& b) {
  constexpr int kCount = kRows / kSide;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
#pragma unroll
    for (int j = 0; j < kCount; ++j) c[i][j] = 0.f;
  }
#pragma unroll 2
  for (int k = 0; k < kHeadSize; k += 4) {
    Pack<float> left[kCount], right[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      left[i] = load_pack(a.row(thread_y() + kSide * i) + k);
      right[i] = load_pack(b.row(thread_x() + kSide * i) + k);
    }
#pragma unroll
    for (int e = 0; e < 4; ++e) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
#pragma unroll
        for (int j = 0; j < kCount; ++j) c[i][j] = fmaf(left[i].at[e], right[j].at[e], c[i][j]);
      }
    }
  }
}

// Like capped(), with an exact tanh.
template <int kCount>
__device__ __forceinline__ void cap_exactly(float (&scores)[kCount], const AttentionParams& p) {
#pragma unroll
  for (float& score : scores) score = p.cap_out * tanhf(score * p.cap_in);
}

// Accumulators of thread (x, y) for a result [kRows, kHeadSize]. at[i][j] has the four columns from
// 4 x + 64 j on in row y + 16 i.
template <int kHeadSize, int kRows>
struct Sums {
  static constexpr int kCount = kRows / kSide, kPacks = kHeadSize / (4 * kSide);
  Pack<float> at[kCount][kPacks];

  __device__ __forceinline__ Sums() {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
#pragma unroll
      for (int j = 0; j < kPacks; ++j) at[i][j] = Pack<float>{};
    }
  }

  // Adds the matmul weights * b. kTransposed: weights are [k][row].
  template <bool kTransposed>
  __device__ __forceinline__ void add(Scores<kRows>& weights, const Rows<kHeadSize, kRows>& b) {
#pragma unroll 2
    for (int k = 0; k < kRows; ++k) {
      float weight[kCount];
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        const int row = thread_y() + kSide * i;
        weight[i] = kTransposed ? weights.at(k, row) : weights.at(row, k);
      }
#pragma unroll
      for (int j = 0; j < kPacks; ++j) {
        const Pack<float> right = load_pack(b.row(k) + 4 * (thread_x() + kSide * j));
#pragma unroll
        for (int i = 0; i < kCount; ++i) {
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            at[i][j].at[e] = fmaf(weight[i], right.at[e], at[i][j].at[e]);
          }
        }
      }
    }
  }

  // Multiplies row i by factor[i] and stores it, if it is below `end`, to a head in global memory.
  __device__ __forceinline__ void store(const float (&factor)[kCount], const HeadRows& to,
                                        int begin, int end) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int row = begin + thread_y() + kSide * i;
#pragma unroll
      for (int j = 0; j < kPacks; ++j) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int column = 4 * (thread_x() + kSide * j) + e;
          if (row < end && column < to.columns) {
            to.first[row * to.stride + column] = at[i][j].at[e] * factor[i];
          }
        }
      }
    }
  }
  __device__ __forceinline__ void store(float factor, const HeadRows& to, int begin,
                                        int end) const {
    float factors[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) factors[i] = factor;
    store(factors, to, begin, end);
  }
};

// ---- Forward: a block owns a tile of queries ----

template <int kHeadSize, Room kRoom>
struct F32FwdTiles {
  static constexpr int kTile = f32_tile(kHeadSize, kRoom);
  Rows<kHeadSize, kTile> q, k, v;
  Scores<kTile> p;
};
template <int kHeadSize>
struct F32FwdFamily {
  template <Room kRoom>
  using Tiles = F32FwdTiles<kHeadSize, kRoom>;
};

template <int kHeadSize, Room kRoom>
__global__ void __launch_bounds__(kThreads, 1)
    attention_fwd_f32_kernel(const __grid_constant__ AttentionParams p,
                             const __grid_constant__ BlockOrder order) {
  await_previous_grid();
  using Tiles = F32FwdTiles<kHeadSize, kRoom>;
  constexpr int kTile = Tiles::kTile, kCount = kTile / kSide;
  Tiles& tiles = *dynamic_shared<Tiles>();
  const QueryTile<true> block(p, block_place(order, p.heads), kTile);
  const BlockPlace& place = block.place;
  const Sequence& sequence = block.sequence;
  const int query = block.query;
  const HeadRows k(p, p.k, place.batch, block.kv_head), v(p, p.v, place.batch, block.kv_head);
  load_rows(tiles.q, HeadRows(p, p.q, place.batch, place.head), query, sequence.queries);

  Sums<kHeadSize, kTile> out;
  float maximum[kCount], sum[kCount];
#pragma unroll
  for (int i = 0; i < kCount; ++i) maximum[i] = -kInfinity, sum[i] = 0.f;
  for (int step = block.first_step(kTile), end = block.end_step(kTile); step < end; ++step) {
    const int key = block.key_of(step, kTile);
    load_rows(tiles.k, k, key, sequence.keys);
    load_rows(tiles.v, v, key, sequence.keys);
    __syncthreads();
    float scores[kCount][kCount];
    dot_rows(scores, tiles.q, tiles.k);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (p.softcap > 0) cap_exactly(scores[i], p);
      const int row = thread_y() + kSide * i, visible = sequence.visible_keys(query + row) - key;
      const int first = sequence.first_key(query + row) - key;
      float largest = -kInfinity;
#pragma unroll
      for (int j = 0; j < kCount; ++j) {
        const int column = thread_x() + kSide * j;
        const bool seen = column < visible && column >= first;
        scores[i][j] = seen ? scores[i][j] * p.scale_log2 : -kInfinity;
        largest = fmaxf(largest, scores[i][j]);
      }
      largest = fmaxf(maximum[i], warp_max<kSide>(largest));
      const float shift = largest == -kInfinity ? 0.f : largest;
      const float rescale = exp2f(maximum[i] - shift);
      maximum[i] = largest;
      sum[i] *= rescale;
#pragma unroll
      for (int j = 0; j < kCount; ++j) {
        const float probability = exp2f(scores[i][j] - shift);
        sum[i] += probability;
        tiles.p.at(row, thread_x() + kSide * j) = probability;
      }
#pragma unroll
      for (int j = 0; j < Sums<kHeadSize, kTile>::kPacks; ++j) {
#pragma unroll
        for (int e = 0; e < 4; ++e) out.at[i][j].at[e] *= rescale;
      }
    }
    __syncthreads();
    out.template add<false>(tiles.p, tiles.v);
    __syncthreads();
  }

  float* lse = p.lse + place.batch * p.lse_batch_stride + place.head * p.lse_head_stride;
  float factor[kCount];
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const int row = query + thread_y() + kSide * i;
    const float total = warp_sum<kSide>(sum[i]);
    const bool saw_keys = row < sequence.queries && total != 0.f;  // also true if total is NaN
    factor[i] = saw_keys ? 1.f / total : 0.f;
    if (row < p.queries && thread_x() == 0) {
      lse[row * p.lse_row_stride] =
          saw_keys ? (maximum[i] + log2f(total)) * 0.693147181f : -kInfinity;
    }
  }
  out.store(factor, HeadRows(p, p.out, place.batch, place.head), query,
            static_cast<int>(p.queries));
}

// ---- Backward: a block owns a tile of keys, and then one of queries ----

template <int kHeadSize, Room kRoom>
struct F32BwdTiles {
  static constexpr int kTile = f32_tile(kHeadSize, kRoom);
  Rows<kHeadSize, kTile> q, dout, k, v;
  Scores<kTile> p;  // P, later dS
};
template <int kHeadSize>
struct F32BwdFamily {
  template <Room kRoom>
  using Tiles = F32BwdTiles<kHeadSize, kRoom>;
};

// Computes P and dS of the current tiles: rows are queries from `query` on, columns keys from `key`
// on.
template <int kHeadSize, int kTile, class Tiles>
__device__ __forceinline__ void f32_gradients(const AttentionParams& p, const Sequence& sequence,
                                              const Tiles& tiles, int64_t row, int query, int key,
                                              float (&probability)[kTile / kSide][kTile / kSide],
                                              float (&ds)[kTile / kSide][kTile / kSide]) {
  dot_rows(probability, tiles.q, tiles.k);
  dot_rows(ds, tiles.dout, tiles.v);
#pragma unroll
  for (int i = 0; i < kTile / kSide; ++i) {
    const int own = thread_y() + kSide * i, visible = sequence.visible_keys(query + own) - key;
    const int first = sequence.first_key(query + own) - key;
    const float lse2 = p.lse2[row + own], delta = p.delta[row + own];
    if (p.softcap > 0) {
      cap_exactly(probability[i], p);
#pragma unroll
      for (int j = 0; j < kTile / kSide; ++j) {
        ds[i][j] = capped_gradient(ds[i][j], delta, slope_of(probability[i][j], p));
      }
    }
#pragma unroll
    for (int j = 0; j < kTile / kSide; ++j) {
      const int column = thread_x() + kSide * j;
      const bool seen = column < visible && column >= first;
      probability[i][j] = seen ? exp2f(fmaf(probability[i][j], p.scale_log2, -lse2)) : 0.f;
      ds[i][j] = seen ? probability[i][j] * (ds[i][j] - delta) : 0.f;
    }
  }
}

template <int kTile>
__device__ __forceinline__ void put(Scores<kTile>& to,
                                    const float (&from)[kTile / kSide][kTile / kSide]) {
#pragma unroll
  for (int i = 0; i < kTile / kSide; ++i) {
#pragma unroll
    for (int j = 0; j < kTile / kSide; ++j) {
      to.at(thread_y() + kSide * i, thread_x() + kSide * j) = from[i][j];
    }
  }
}

template <int kHeadSize, Room kRoom>
__global__ void __launch_bounds__(kThreads, 1)
    attention_bwd_keys_f32_kernel(const __grid_constant__ AttentionParams p,
                                  const __grid_constant__ BlockOrder order) {
  await_previous_grid();
  using Tiles = F32BwdTiles<kHeadSize, kRoom>;
  constexpr int kTile = Tiles::kTile, kCount = kTile / kSide;
  Tiles& tiles = *dynamic_shared<Tiles>();
  const KeyTile block(p, block_place(order, p.kv_heads), kTile);
  const BlockPlace& place = block.place;
  const Sequence& sequence = block.sequence;
  const int key = block.key, group = block.group;
  load_rows(tiles.k, HeadRows(p, p.k, place.batch, place.head), key, sequence.keys);
  load_rows(tiles.v, HeadRows(p, p.v, place.batch, place.head), key, sequence.keys);

  Sums<kHeadSize, kTile> dk, dv;
  QueryStep<kTile, kTile, true> next(sequence, key, place.head * group);
  for (int left = next.count(group); left > 0; --left) {
    const int head = next.head, query = next.query();
    load_rows(tiles.q, HeadRows(p, p.q, place.batch, head), query, sequence.queries);
    load_rows(tiles.dout, HeadRows(p, p.dout, place.batch, head), query, sequence.queries);
    __syncthreads();
    float probability[kCount][kCount], ds[kCount][kCount];
    const int64_t row = (place.batch * p.heads + head) * p.padded_queries + query;
    f32_gradients<kHeadSize, kTile>(p, sequence, tiles, row, query, key, probability, ds);
    put(tiles.p, probability);
    __syncthreads();
    dv.template add<true>(tiles.p, tiles.dout);
    __syncthreads();
    put(tiles.p, ds);
    __syncthreads();
    dk.template add<true>(tiles.p, tiles.q);
    __syncthreads();
    if (left > 1) next.advance();
  }
  const int keys = static_cast<int>(p.keys);
  dk.store(p.scale, HeadRows(p, p.dk, place.batch, place.head), key, keys);
  dv.store(1.f, HeadRows(p, p.dv, place.batch, place.head), key, keys);
}

template <int kHeadSize, Room kRoom>
__global__ void __launch_bounds__(kThreads, 1)
    attention_bwd_queries_f32_kernel(const __grid_constant__ AttentionParams p,
                                     const __grid_constant__ BlockOrder order) {
  await_previous_grid();
  using Tiles = F32BwdTiles<kHeadSize, kRoom>;
  constexpr int kTile = Tiles::kTile, kCount = kTile / kSide;
  Tiles& tiles = *dynamic_shared<Tiles>();
  const QueryTile<true> block(p, block_place(order, p.heads), kTile);
  const BlockPlace& place = block.place;
  const Sequence& sequence = block.sequence;
  const int query = block.query;
  const HeadRows k(p, p.k, place.batch, block.kv_head), v(p, p.v, place.batch, block.kv_head);
  const int64_t row = (place.batch * p.heads + place.head) * p.padded_queries + query;
  load_rows(tiles.q, HeadRows(p, p.q, place.batch, place.head), query, sequence.queries);
  load_rows(tiles.dout, HeadRows(p, p.dout, place.batch, place.head), query, sequence.queries);

  Sums<kHeadSize, kTile> dq;
  for (int step = block.first_step(kTile), end = block.end_step(kTile); step < end; ++step) {
    const int key = block.key_of(step, kTile);
    load_rows(tiles.k, k, key, sequence.keys);
    load_rows(tiles.v, v, key, sequence.keys);
    __syncthreads();
    float probability[kCount][kCount], ds[kCount][kCount];
    f32_gradients<kHeadSize, kTile>(p, sequence, tiles, row, query, key, probability, ds);
    put(tiles.p, ds);
    __syncthreads();
    dq.template add<false>(tiles.p, tiles.k);
    __syncthreads();
  }
  dq.store(p.scale, HeadRows(p, p.dq, place.batch, place.head), query, static_cast<int>(p.queries));
}

// Calls fn.template operator()<n>() for the head size padded to n = 64, 128 or 256.
template <typename Fn>
void dispatch_f32(int64_t head_size, Fn&& fn) {
  if (head_size <= 64) return fn.template operator()<64>();
  if (head_size <= 128) return fn.template operator()<128>();
  fn.template operator()<256>();
}

// Launches the kernel that kernel.operator()<n, room>() returns, for heads of size n and tiles that
// fit `room`. A thread block owns a tile of queries or of keys; order_by() returns the order of
// these tiles.
template <template <int> class Family, class Kernel>
void launch_f32(const Exec& exec, const AttentionParams& params,
                BlockOrder (*order_by)(const AttentionProblem&, int), const Kernel& kernel) {
  dispatch_f32(params.head_size, [&]<int kHeadSize>() {
    dispatch_room<Family<kHeadSize>>(exec, [&]<Room kRoom>() {
      using Own = typename Family<kHeadSize>::template Tiles<kRoom>;
      const BlockOrder order = order_by(params, Own::kTile);
      if (order.blocks() == 0) return;
      simt::launch(kernel.template operator()<kHeadSize, kRoom>(),
                   {.grid = order.blocks(), .block = kThreads, .smem_bytes = sizeof(Own)}, exec,
                   params, order);
    });
  });
}

}  // namespace

template <>
void launch_attention_fwd<float>(const Exec& exec, const AttentionParams& params) {
  launch_f32<F32FwdFamily>(exec, params, order_by_queries,
                           [&]<int n, Room room>() { return attention_fwd_f32_kernel<n, room>; });
}

template <>
void launch_attention_bwd_keys<float>(const Exec& exec, const AttentionParams& params) {
  launch_f32<F32BwdFamily>(exec, params, order_by_keys, [&]<int n, Room room>() {
    return attention_bwd_keys_f32_kernel<n, room>;
  });
}

template <>
void launch_attention_bwd_queries<float>(const Exec& exec, const AttentionParams& params) {
  launch_f32<F32BwdFamily>(exec, params, order_by_queries, [&]<int n, Room room>() {
    return attention_bwd_queries_f32_kernel<n, room>;
  });
}

}  // namespace shale::kernels::SHALE_BACKEND
