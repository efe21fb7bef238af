#pragma once

// Attention forward, after FlashAttention-3 (arXiv:2407.08608, algorithm 2).
//
// A block has one loading warpgroup, of which one warp loads, and two or three computing warpgroups
// with 64 queries each. It takes one tile of queries after another from a queue, and the loads run
// ahead of the matmuls across tiles. A warpgroup has O, the scores S and the probabilities P of its
// tile in registers:
//
//   S(n) = Q K(n)^T       issued first
//   O += P(n-1) V(n-1)    runs while the softmax of S(n) is computed
//
// Warpgroups take turns at issuing, so that one's matmuls also overlap another's exponentials.
// Tiles of keys are processed from the last to the first: only the first few, at the diagonal and
// the ragged end, are masked.

#include <type_traits>

#include "shale/base/error.h"
#include "shale/kernels/cuda/attention/attention90_config.h"
#include "shale/kernels/cuda/attention/attention90_softmax.cuh"
#include "shale/kernels/cuda/attention/attention90_tile.cuh"
#include "shale/kernels/cuda/grid.h"
#include "shale/kernels/cuda/tile_queue.cuh"
#include "shale/kernels/cuda/turns.cuh"

namespace shale::kernels::SHALE_BACKEND {

struct Fwd90Params {
  TensorMap q, k, v;
  AttentionParams problem;
  BlockOrder order;
  uint32_t* next_item;  // counter of tiles, see tile_queue.cuh
  float scale_log2_64th;

  __device__ __forceinline__ int items() const { return order.tiles * order.heads; }
};

struct NoRows {};

// kCapped: the problem has a softcap.
template <int kHeadSize, bool kCapped>
struct Fwd90Shared {
  static constexpr Fwd90Config kConfig = fwd90_config(kHeadSize, kCapped);

  using Rows = BoxedTile<kConfig.queries(), kHeadSize>;
  Rows q;
  BoxedTile<kConfig.keys, kHeadSize> k[kConfig.stages], v[kConfig.stages];
  std::conditional_t<kConfig.out_over_q, NoRows, Rows> own_out;
  MBarrier q_full, q_empty, patch;
  MBarrier k_full[kConfig.stages], k_empty[kConfig.stages];
  MBarrier v_full[kConfig.stages], v_empty[kConfig.stages];
  TileQueue items;
  uint32_t settled[kConfig.consumers * kWarpgroupSize];

  __device__ __forceinline__ Rows& out() {
    if constexpr (kConfig.out_over_q) {
      return q;
    } else {
      return own_out;
    }
  }
};

// Returns the tile with this number. Callers recompute it where they need it, to save registers.
template <class Shared>
__device__ __forceinline__ QueryTile<> fwd90_item(const Fwd90Params& params, int number) {
  const AttentionParams& p = params.problem;
  return QueryTile<>(p, place_in_order(params.order, p.heads, opaque(number)),
                     Shared::kConfig.queries());
}

// ---- The warps that take and load tiles ----

// Takes tiles from the queue and passes their numbers to the warps; runs in one thread. It takes
// another tile only when the warps have finished an earlier one, and so is never far ahead: no
// other block can process a tile that it has taken.
template <class Shared>
__device__ __forceinline__ void take_fwd90(const Fwd90Params& params, Shared& shared) {
  TileGiver giver(shared.items);
  int number = first_tile();
  giver.give(number);
  while (number < params.items()) {
    giver.wait();
    number = tile_of(ask_for_tile(number, params.items(), params.next_item));
    giver.give(number);
  }
}

// Loads K and V in the order of their use: K of a step before V of the previous step.
template <class Shared>
__device__ __forceinline__ void load_fwd90(const Fwd90Params& params, Shared& shared) {
  constexpr Fwd90Config kConfig = Shared::kConfig;
  const AttentionParams& p = params.problem;
  RingPlace<kConfig.stages> k_place, v_place;
  TileReader<> reader(shared.items);
  TileLoader loader(shared.patch);
  for (reader.wait(); reader.tile() < params.items(); reader.wait()) {
    const QueryTile<> item = fwd90_item<Shared>(params, reader.tile());
    const int first_step = item.first_step(kConfig.keys), end_step = item.end_step(kConfig.keys);
    const auto keys_of = [&](int step) {
      return RowRange{step * kConfig.keys, item.sequence.keys, static_cast<int>(p.keys),
                      item.kv_head, item.place.batch};
    };
    // Rows of Q beyond the sequence's end only affect their own results, which are not stored.
    if (lane_id() == 0) mbarrier_wait(shared.q_empty, reader.parity() ^ 1);
    const int queries = static_cast<int>(p.queries);
    loader.load(shared.q, params.q, shared.q_full,
                {item.query, queries, queries, item.place.head, item.place.batch});
    for (int step = end_step - 1; step >= first_step - 1; --step) {
      if (step >= first_step) {
        if (lane_id() == 0) mbarrier_wait(shared.k_empty[k_place.stage], k_place.parity ^ 1);
        loader.load(shared.k[k_place.stage], params.k, shared.k_full[k_place.stage], keys_of(step));
        k_place.next();
      }
      if (step < end_step - 1) {
        if (lane_id() == 0) mbarrier_wait(shared.v_empty[v_place.stage], v_place.parity ^ 1);
        loader.load(shared.v[v_place.stage], params.v, shared.v_full[v_place.stage],
                    keys_of(step + 1));
        v_place.next();
      }
    }
    reader.release();
  }
}

// ---- The computing warpgroups ----

template <typename T, int kHeadSize, bool kCapped>
class Fwd90Consumer {
  using Shared = Fwd90Shared<kHeadSize, kCapped>;
  static constexpr Fwd90Config kConfig = Shared::kConfig;
  static constexpr int kKeys = kConfig.keys;
  using Tile = BoxedTile<kKeys, kHeadSize>;

 public:
  __device__ __forceinline__ Fwd90Consumer(const Fwd90Params& params, Shared& shared, int warpgroup)
      : params_(params), shared_(shared), warpgroup_(warpgroup), reader_(shared.items) {}

  __device__ __forceinline__ void run() {
    if (turns().is_last()) turns().pass();
    for (reader_.wait(); reader_.tile() < params_.items(); reader_.wait()) {
      softmax_ = RowSoftmax();
      compute();
      store();
      reader_.release();
    }
    if (warpgroup_ == 0) turns().take();  // every pass() needs a take()
  }

 private:
  __device__ __forceinline__ Turns<kConfig.consumers, 1> turns() const { return {warpgroup_}; }
  __device__ __forceinline__ void release(MBarrier& empty) {
    if (lane_id() == 0) mbarrier_arrive(empty);
  }

  __device__ __forceinline__ void issue_scores() {
    mbarrier_wait(shared_.k_full[k_place_.stage], k_place_.parity);
    issue_product<T>(scores_, shared_.q, 64 * warpgroup_,
                     StageOperand<Tile>{shared_.k[0], k_place_.stage});
  }
  __device__ __forceinline__ void issue_values() {
    mbarrier_wait(shared_.v_full[v_place_.stage], v_place_.parity);
    issue_sum<T>(out_, probabilities_, StageOperand<Tile>{shared_.v[0], v_place_.stage});
  }
  __device__ __forceinline__ void release_k() {
    release(shared_.k_empty[k_place_.stage]);
    k_place_.next();
  }
  __device__ __forceinline__ void release_v() {
    release(shared_.v_empty[v_place_.stage]);
    v_place_.next();
  }

  __device__ __forceinline__ void rescale() {
    float factor[2];
    softmax_.rescale(factor);
#pragma unroll
    for (int i = 0; i < kHeadSize / 2; ++i) out_[i] *= factor[i / 2 % 2];
  }

  // Computes the probabilities of one tile of keys, and adds the product of the previous tile's
  // probabilities and values to `out_`. Returns whether the caller must call rescale().
  template <bool kMasked>
  __device__ __forceinline__ bool advance(const Sequence& sequence, int query, int step) {
    turns().take();
    issue_scores();
    issue_values();
    turns().pass();
    wgmma_wait<1>(scores_);
    release_k();
    if constexpr (kCapped) cap_scores(scores_, params_.problem);
    if constexpr (kMasked) mask_keys(scores_, sequence, query, step * kKeys, -kInfinity);
    // exp2_by_fma() would give masked keys a weight above 0.
    constexpr int kByFma = kMasked ? 0 : kConfig.by_fma;
    const bool rescales =
        softmax_.add<kByFma>(scores_, params_.problem.scale_log2, params_.scale_log2_64th);
    settle(shared_.settled, softmax_.bits());
    wgmma_wait<0>(out_);
    release_v();
    round_to_operands<T>(scores_, probabilities_);
    return rescales;
  }
  // Processes the tiles from `step` down to `last`. Rescaling is rare, so the outer loop does it.
  template <bool kMasked>
  __device__ __forceinline__ void advance_to(const Sequence& sequence, int query, int& step,
                                             int last) {
    while (step >= last) {
      while (!advance<kMasked>(sequence, query, step)) {
        softmax_.keep();
        if (--step < last) return;
      }
      rescale();
      --step;
    }
  }

  __device__ __forceinline__ void compute() {
    const QueryTile<> item = fwd90_item<Shared>(params_, reader_.tile());
    const int first_step = uniform(item.first_step(kKeys));
    int step = uniform(item.end_step(kKeys));
    mbarrier_wait(shared_.q_full, reader_.parity());
    if (step == first_step) {
      if constexpr (!kConfig.out_over_q) release(shared_.q_empty);
      return set_zero(out_);
    }
    const int first_query = item.query + 64 * warpgroup_, query = first_query + thread_row();
    --step;
    issue_scores();
    wgmma_wait<0>(scores_);
    release_k();
    if constexpr (kCapped) cap_scores(scores_, params_.problem);
    mask_keys(scores_, item.sequence, query, step * kKeys, -kInfinity);
    softmax_.add<0>(scores_, params_.problem.scale_log2, params_.scale_log2_64th);
    round_to_operands<T>(scores_, probabilities_);
    set_zero(out_);
    rescale();
    // A key that the first and the last query see is seen by all queries. Masked steps are at the
    // diagonal and, if earlier keys are hidden, at the other end.
    int masked = uniform(std::max(item.sequence.visible_keys(first_query), 0) / kKeys);
    const int unmasked = uniform((item.sequence.first_key(first_query + 63) + kKeys - 1) / kKeys);
    for (--step; step >= first_step;) {
      advance_to<true>(item.sequence, query, step, std::max(masked, first_step));
      advance_to<false>(item.sequence, query, step, unmasked);
      masked = first_step;
    }
    if constexpr (!kConfig.out_over_q) release(shared_.q_empty);
    issue_values();
    wgmma_wait<0>(out_);
    release_v();
  }

  // Stores out = sums / softmax sum, lse = ln of the softmax sum; rows that see no key get 0 and
  // -inf.
  __device__ __forceinline__ void store() {
    constexpr float kLn2 = 0.693147181f;
    const QueryTile<> item = fwd90_item<Shared>(params_, reader_.tile());
    const AttentionParams& p = params_.problem;
    const int first_query = item.query + 64 * warpgroup_;
    float* const lse =
        p.lse + item.place.batch * p.lse_batch_stride + item.place.head * p.lse_head_stride;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = first_query + thread_row() + 8 * half;
      const float sum = warp_sum<4>(softmax_.sum[half]);
      const bool saw_keys = row < item.sequence.queries && sum != 0.f;  // also true if sum is NaN
      const float factor = saw_keys ? fast_rcp(sum) : 0.f;
#pragma unroll
      for (int i = 2 * half; i < kHeadSize / 2; i += 4) {
        // Inputs in rows beyond the sequence's end are arbitrary, even NaN.
        out_[i] = saw_keys ? out_[i] * factor : 0.f;
        out_[i + 1] = saw_keys ? out_[i + 1] * factor : 0.f;
      }
      if (row < p.queries && lane_id() % 4 == 0) {
        lse[row * p.lse_row_stride] =
            saw_keys ? (softmax_.shift[half] + log2f(sum)) * kLn2 : -kInfinity;
      }
    }
    // wgmma works on whole warpgroups: after this barrier none of the warps reads Q.
    if (kConfig.out_over_q) barrier_sync(1 + kConfig.consumers + warpgroup_, kWarpgroupSize);
    store_rows(out_, shared_.out(), 64 * warpgroup_,
               head_rows<T>(p.out, item.place.batch, item.place.head), p.out.row_stride,
               first_query, static_cast<int>(p.queries));
    if constexpr (kConfig.out_over_q) {
      fence_proxy_async();
      __syncwarp();
      release(shared_.q_empty);
    }
  }

  const Fwd90Params& params_;
  Shared& shared_;
  int warpgroup_;
  TileReader<> reader_;
  RingPlace<kConfig.stages> k_place_, v_place_;
  RowSoftmax softmax_;
  float out_[kHeadSize / 2], scores_[kKeys / 2];
  uint32_t probabilities_[kKeys / 16][4];
};

// ---- The kernel ----

template <typename T, int kHeadSize, bool kCapped>
__global__ void __launch_bounds__(Fwd90Shared<kHeadSize, kCapped>::kConfig.threads(), 1)
    attention90_fwd_kernel(const __grid_constant__ Fwd90Params params) {
  using Shared = Fwd90Shared<kHeadSize, kCapped>;
  constexpr Fwd90Config kConfig = Shared::kConfig;
  constexpr int kConsumerWarps = kConfig.consumers * kWarpgroupSize / kWarpSize;
  Shared& shared = *dynamic_shared<Shared>();
  if (threadIdx.x == 0) {
    prefetch_tensor_map(params.q);
    prefetch_tensor_map(params.k);
    prefetch_tensor_map(params.v);
    mbarrier_init(shared.q_full, 1);
    mbarrier_init(shared.q_empty, kConsumerWarps);
    mbarrier_init(shared.patch, 1);
    shared.items.init(kConsumerWarps + 1);  // the computing warps and the loading warp
    for (int i = 0; i < kConfig.stages; ++i) {
      mbarrier_init(shared.k_full[i], 1);
      mbarrier_init(shared.k_empty[i], kConsumerWarps);
      mbarrier_init(shared.v_full[i], 1);
      mbarrier_init(shared.v_empty[i], kConsumerWarps);
    }
    fence_mbarrier_init();
  }
  __syncthreads();
  await_previous_grid();

  const int warpgroup = uniform(static_cast<int>(threadIdx.x) / kWarpgroupSize);
  if (warpgroup == kConfig.consumers) {
    shrink_registers<kConfig.producer_registers>();
    if (warp_in_group() == 0) load_fwd90(params, shared);
    if (warp_in_group() == 1 && lane_id() == 0) take_fwd90(params, shared);
  } else {
    grow_registers<kConfig.consumer_registers>();
    Fwd90Consumer<T, kHeadSize, kCapped>(params, shared, warpgroup).run();
  }
}

template <typename T, int kHeadSize, bool kCapped>
void launch_attention90_fwd_kernel(const Exec& exec, const AttentionParams& p) {
  using Shared = Fwd90Shared<kHeadSize, kCapped>;
  constexpr Fwd90Config kConfig = Shared::kConfig;
  Fwd90Params params{};
  params.problem = p;
  params.scale_log2_64th = p.scale_log2 / 64;
  params.order = order_by_queries(p, kConfig.queries());
  params.next_item = tile_counter(exec);
  params.q = rows_map<kConfig.queries()>(p.q, p.dtype, p.batch, p.queries, p.heads, kHeadSize);
  params.k = rows_map<kConfig.keys>(p.k, p.dtype, p.batch, p.keys, p.kv_heads, kHeadSize);
  params.v = rows_map<kConfig.keys>(p.v, p.dtype, p.batch, p.keys, p.kv_heads, kHeadSize);
  simt::launch(attention90_fwd_kernel<T, kHeadSize, kCapped>,
               {.grid = persistent_blocks(exec, params.order.blocks()),
                .block = kConfig.threads(),
                .smem_bytes = sizeof(Shared)},
               exec, params);
}

template <typename T, int kHeadSize>
void launch_attention90_fwd_of_heads(const Exec& exec, const AttentionParams& p) {
  if (p.softcap > 0) return launch_attention90_fwd_kernel<T, kHeadSize, true>(exec, p);
  launch_attention90_fwd_kernel<T, kHeadSize, false>(exec, p);
}

template <typename T>
void launch_attention90_fwd(const Exec& exec, const AttentionParams& p) {
  switch (p.head_size) {
    case 64: return launch_attention90_fwd_of_heads<T, 64>(exec, p);
    case 96: return launch_attention90_fwd_of_heads<T, 96>(exec, p);
    case 128: return launch_attention90_fwd_of_heads<T, 128>(exec, p);
    case 192: return launch_attention90_fwd_of_heads<T, 192>(exec, p);
    case 256: return launch_attention90_fwd_of_heads<T, 256>(exec, p);
    default: throw InternalError(cat("attention: no Hopper kernel for heads of ", p.head_size));
  }
}

}  // namespace shale::kernels::SHALE_BACKEND
