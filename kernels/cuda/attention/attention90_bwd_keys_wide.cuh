#pragma once

// Computes dK and dV, and in the fast variant dQ, for heads of 192 and 256, whose sums of 64 keys
// fill the registers of two warpgroups (attention90_bwd_keys.cuh has smaller heads).
//
// A block owns 64 keys of one kv head, and iterates over tiles of 64 queries. Each warpgroup
// computes S^T = K Q^T and dP^T = V dO^T for half of a tile's queries, and has the sums of dK and
// dV for half of the head's columns. For these it needs P^T and dS^T of all queries: its own half
// comes from registers as left operands, the other half from shared memory. At the start of a step
// its S^T is ready. The step is:
//
//   computed                                  concurrent matmul
//   P^T = 2^(scale S^T - lse2), to shared     dP^T = V dO^T
//   barrier 1                                 dV += P^T dO of the own queries
//   dS^T = P^T (dP^T - delta), to shared      dV += P^T dO of the other queries
//   barrier 2                                 dK += dS^T Q of the own queries
//   dQ = dS K to its place in the sums        dK += dS^T Q of the other queries,
//                                             S^T of the next step

#include "shale/kernels/cuda/attention/attention90_bwd_keys_tile.cuh"

namespace shale::kernels::SHALE_BACKEND {

template <int kHeadSize>
struct Bwd90WideKeysShared {
  static constexpr int kKeys = kBwd90WideKeys, kQueries = kBwd90WideQueries;
  static constexpr int kDqWays = bwd90_wide_dq_ways(kHeadSize), kDqColumns = 32;

  BoxedTile<kKeys, kHeadSize> k, v;  // K and V; finally dK and dV
  BoxedTile<kQueries, kHeadSize> q[kBwd90Stages], dout[kBwd90Stages];
  BoxedTile<kKeys, kQueries> probabilities, ds;  // P^T and dS^T
  // 16 rows of dQ for each warp, in the layout of AttentionParams::dq_sums.
  alignas(16) float dq[kBwd90Consumers * kWarpgroupSize / kWarpSize][kDqWays][16 * kDqColumns];
  Bwd90Stage<kQueries> stages[kBwd90Stages];
  Bwd90KeysBarriers barriers;
};

// Consecutive boxes of a tile, with the members that store_rows() needs of a tile.
template <class TileT, int kBoxCount>
struct TileBoxes {
  static constexpr int kColumns = 64 * kBoxCount;

  TileT& tile;
  int first;

  __device__ __forceinline__ unsigned char* chunk(int row, int chunk) {
    return tile.chunk(row, 8 * first + chunk);
  }
};

// ---- The computing warpgroups ----

// kCapped: the problem has a softcap. kWarpgroup: index of the warpgroup if a head has an odd
// number of boxes; then the first warpgroup has one more box of dV and dQ, the second one more of
// dK.
template <typename T, int kHeadSize, bool kWithDq, bool kCapped, int kWarpgroup>
class Bwd90WideKeysConsumer {
  using Shared = Bwd90WideKeysShared<kHeadSize>;
  using Tile = BoxedTile<Shared::kQueries, kHeadSize>;
  using KeyRows = BoxedTile<Shared::kKeys, kHeadSize>;
  using Operands = BoxedTile<Shared::kKeys, Shared::kQueries>;
  static constexpr int kKeys = Shared::kKeys, kOwnQueries = Shared::kQueries / kBwd90Consumers;
  static constexpr int kConsumerThreads = kBwd90Consumers * kWarpgroupSize;
  static constexpr int kLess = Tile::kBoxes / 2, kMore = Tile::kBoxes - kLess;
  static constexpr int kDvBoxes = kWarpgroup == 0 ? kMore : kLess;
  static constexpr int kDkBoxes = kWarpgroup == 0 ? kLess : kMore, kDqBoxes = kDvBoxes;
  static constexpr int kOperands = kOwnQueries / 16;
  static_assert(kBwd90Consumers == 2 && Operands::kBoxes == 1);

 public:
  __device__ __forceinline__ Bwd90WideKeysConsumer(const Bwd90Params& params, Shared& shared,
                                                   int warpgroup)
      : params_(params), shared_(shared), warpgroup_(kLess == kMore ? warpgroup : kWarpgroup) {}

  __device__ __forceinline__ void run() {
    set_zero(dk_);
    set_zero(dv_);
    {
      const KeyTile block = bwd90_keys_block<kKeys>(params_);
      QueryStep<kKeys, Shared::kQueries> next(block.sequence, block.key,
                                              block.place.head * block.group);
      const int steps = uniform(next.count(block.group));
      rows_.set(block.sequence, block.key);
      if (steps > 0) {
        mbarrier_wait(shared_.barriers.kv_full, 0);
        wgmma_fence(dk_, dv_);
        issue_scores<0, 1>();
        wgmma_wait<0>(scores_);
        for (int left = steps; left > 1; --left) advance<true>();
        advance<false>();
      }
    }
    if (kWithDq && lane_id() == 0) bulk_wait_read<0>();
    store();
  }

 private:
  __device__ __forceinline__ const Tile& q() const { return shared_.q[place_.stage]; }
  __device__ __forceinline__ const Tile& dout() const { return shared_.dout[place_.stage]; }
  __device__ __forceinline__ int own_query() const { return kOwnQueries * warpgroup_; }
  __device__ __forceinline__ int first_dv_box() const { return kMore * warpgroup_; }
  __device__ __forceinline__ int first_dk_box() const { return kLess * warpgroup_; }
  __device__ __forceinline__ int first_dq_box() const { return first_dv_box(); }

  // Issues the matmuls of S^T and dP^T for the warpgroup's own queries. S^T may be issued in kParts
  // parts of its summed dimension.
  template <int kPart, int kParts>
  __device__ __forceinline__ void issue_scores() {
    if constexpr (kPart == 0) {
      mbarrier_wait(shared_.barriers.q_full[place_.stage], place_.parity);
      discard(scores_);
    }
    issue_own_product<kPart, kParts>(scores_, shared_.k, q());
  }
  __device__ __forceinline__ void issue_dp() {
    mbarrier_wait(shared_.barriers.dout_full[place_.stage], place_.parity);
    discard(dp_);
    issue_own_product<0, 1>(dp_, shared_.v, dout());
    // the compiler must not apply the softcap before the matmul of S^T
    if constexpr (kCapped) wgmma_fence(scores_);
  }
  template <int kPart, int kParts>
  __device__ __forceinline__ void issue_own_product(float (&d)[kOwnQueries / 2], const KeyRows& a,
                                                    const Tile& b) {
    constexpr int kColumns = kHeadSize / kParts;
    wgmma_fence(d);
#pragma unroll
    for (int i = 0; i < kColumns; i += 16) {
      const int c = kPart * kColumns + i;
      wgmma<T, kOwnQueries>(d, a.by_rows(0, c), b.by_rows(own_query(), c), c > 0);
    }
    wgmma_commit();
  }

  // These functions issue d += a b for the boxes of b from `box` on: issue_own() sums over the
  // warpgroup's own queries, with a in registers, issue_others() over the other queries.
  template <int kCount>
  __device__ __forceinline__ void issue_own(float (&d)[kCount], const uint32_t (&a)[kOperands][4],
                                            const Tile& b, int box) {
    wgmma_fence(d);
#pragma unroll
    for (int k = 0; k < kOperands; ++k) {
      wgmma<T, 2 * kCount>(d, a[k], b.by_columns(box, own_query() + 16 * k), true);
    }
    wgmma_commit();
  }
  template <int kCount>
  __device__ __forceinline__ void issue_others(float (&d)[kCount], const Operands& a, const Tile& b,
                                               int box) {
    const int query = kOwnQueries - own_query();
    wgmma_fence(d);
#pragma unroll
    for (int k = 0; k < kOwnQueries; k += 16) {
      wgmma<T, 2 * kCount>(d, a.by_rows(0, query + k), b.by_columns(box, query + k), true);
    }
    wgmma_commit();
  }

  // Issues the matmul of 64 columns of dQ = dS K for all queries of the tile.
  __device__ __forceinline__ void issue_dq(float (&dq)[32], int box) {
    discard(dq);
    wgmma_fence(dq);
#pragma unroll
    for (int k = 0; k < kKeys; k += 16) {
      wgmma<T, 64>(dq, shared_.ds.by_columns(0, k), shared_.k.by_columns(box, k), k > 0);
    }
    wgmma_commit();
  }
  // Adds the warpgroup's i-th box of dQ to the sums in memory.
  __device__ __forceinline__ void add_dq(const float (&dq)[32], int i, int64_t first_row) {
    constexpr int kParts = 64 / Shared::kDqColumns;
    auto& staging = shared_.dq[static_cast<int>(threadIdx.x) / kWarpSize];
    float* const sums = params_.problem.dq_sums + (first_row + 16 * warp_in_group()) * kHeadSize +
                        16 * 64 * (first_dq_box() + i);
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      add_fragments<Shared::kDqWays>(dq, part * 32 / kParts, staging[part % Shared::kDqWays],
                                     sums + 16 * Shared::kDqColumns * part);
    }
  }

  // Processes one tile of queries. scores_ has the tile's S^T, and at the end S^T of the next tile,
  // if there is one. As in attention90_bwd_keys.cuh, no matmul is in flight at the end of a loop
  // iteration. So no matmul reads dS^T then, and the next step overwrites it after its barrier 1.
  template <bool kHasNext>
  __device__ __forceinline__ void advance() {
    const auto& stage = shared_.stages[place_.stage];
    const AttentionParams& p = params_.problem;
    const int query = stage.query + own_query();
    const bool masked = rows_.masks(query, kOwnQueries);
    issue_dp();
    if constexpr (kCapped) cap_scores(scores_, p);
    exponentiate(scores_, stage.lse2 + own_query(), p);
    if (masked) rows_.mask(scores_, query);
    round_to_operands<T>(scores_, probabilities_);
    put_operands(probabilities_, shared_.probabilities, 0, own_query() / 8);
    issue_own(dv_, probabilities_, dout(), first_dv_box());
    barrier_sync(1, kConsumerThreads);  // P^T is complete
    issue_others(dv_, shared_.probabilities, dout(), first_dv_box());
    wgmma_wait<2>(dp_);
    if constexpr (kCapped) {
      cap_gradients(dp_, scores_, stage.delta + own_query(), stage.lse2 + own_query(), p);
    }
    differentiate(dp_, scores_, stage.delta + own_query());
    // without the mask, P = 0 times an infinite dP would be NaN
    if (masked) rows_.mask(dp_, query);
    round_to_operands<T>(dp_, ds_);
    put_operands(ds_, shared_.ds, 0, own_query() / 8);
    issue_own(dk_, ds_, q(), first_dk_box());
    wgmma_wait<1>(dv_);
    // Waits until dS^T is complete, and all warps have read P^T, whose buffer the next step reuses.
    barrier_sync(2, kConsumerThreads);
    issue_others(dk_, shared_.ds, q(), first_dk_box());
    finish<kHasNext>(stage.row);
  }

  // Finishes a step. The matmuls of dK, the last ones that read the stage, are still in flight.
  // Computes dQ, box by box, because there are registers for only one box. Parts of the next step's
  // S^T are computed at the same time.
  template <bool kHasNext>
  __device__ __forceinline__ void finish(int64_t row) {
    const int done = place_.stage;
    place_.next();
    if constexpr (kWithDq) {
      float dq[32];
      issue_dq(dq, first_dq_box());
      wgmma_wait<1>(dk_);
      release_stage(shared_.barriers.empty[done]);
      add_dq_beside_scores<kHasNext, 0>(dq, row);
      if constexpr (kDqBoxes == 2) {
        issue_dq(dq, first_dq_box() + 1);
        add_dq_beside_scores<kHasNext, 1>(dq, row);
      }
    } else {
      if constexpr (kHasNext) issue_scores<0, 1>();
      wgmma_wait<kHasNext ? 1 : 0>(dk_);
      release_stage(shared_.barriers.empty[done]);
    }
    if constexpr (kHasNext) wgmma_wait<0>(scores_);
  }
  template <bool kHasNext, int kBox>
  __device__ __forceinline__ void add_dq_beside_scores(float (&dq)[32], int64_t row) {
    if constexpr (kHasNext) issue_scores<kBox, kDqBoxes>();
    wgmma_wait<kHasNext ? 1 : 0>(dq);
    add_dq(dq, kBox, row);
  }

  __device__ __forceinline__ void store() {
    const AttentionParams& p = params_.problem;
    const KeyTile block = bwd90_keys_block<kKeys>(params_);
    const BlockPlace& place = block.place;
    const int keys = static_cast<int>(p.keys);
    TileBoxes<KeyRows, kDkBoxes> dk{shared_.k, first_dk_box()};
    TileBoxes<KeyRows, kDvBoxes> dv{shared_.v, first_dv_box()};
    barrier_sync(3, kConsumerThreads);  // all matmuls have read K and V
#pragma unroll
    for (float& value : dk_) value *= p.scale;
    store_rows(dk_, dk, 0, head_rows<T>(p.dk, place.batch, place.head) + 64 * first_dk_box(),
               p.dk.row_stride, block.key, keys);
    store_rows(dv_, dv, 0, head_rows<T>(p.dv, place.batch, place.head) + 64 * first_dv_box(),
               p.dv.row_stride, block.key, keys);
  }

  const Bwd90Params& params_;
  Shared& shared_;
  int warpgroup_;
  Bwd90KeyRows rows_;
  RingPlace<kBwd90Stages> place_;
  float dk_[32 * kDkBoxes], dv_[32 * kDvBoxes];
  float scores_[kOwnQueries / 2], dp_[kOwnQueries / 2];
  uint32_t probabilities_[kOperands][4], ds_[kOperands][4];
};

}  // namespace shale::kernels::SHALE_BACKEND
