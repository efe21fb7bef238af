#pragma once

#include "shale/base/error.h"
#include "shale/base/gpu_model.h"
#include "shale/kernels/attention_problem.h"
#include "shale/kernels/cuda/attention/attention_config.h"
#include "shale/kernels/simt/backend.h"

// What attention.cu, which takes the arguments apart, and the files with the kernels share.
namespace shale::kernels::SHALE_BACKEND {

// Which tile of which head a block of a one-dimensional grid takes: long ones first, so that the
// end is even, and of no more heads at a time than have their keys and values in the second-level
// cache.
struct BlockOrder {
  int tiles = 0;  // of a head
  int heads = 0;  // of the whole batch
  int heads_at_once = 1;
  bool last_first = false;  // the last tiles are the long ones

  int64_t blocks() const { return int64_t{tiles} * heads; }
};

struct AttentionParams : AttentionProblem {
  float scale_log2 = 0;  // of scores in units of log2: scale * log2(e)
  // Of capped scores: scale / softcap, softcap / scale, and 1 / softcap in units of log2.
  float cap_in = 0, cap_out = 0, cap_log2 = 0;

  // Arrays of backward; each starts at row 0 of head 0 and has padded_queries rows to a head.
  int64_t padded_queries = 0;
  float* lse2 = nullptr;   // log2 of the softmax sum; +inf for queries that see no key, and padding
  float* delta = nullptr;  // rowsum(dout * out); 0 there
  // dQ / scale in f32, one tile of 16 rows after the other, each in the order of accumulator
  // fragments: [columns / 8][value][lane]. A warp that adds a value of its fragments then adds to
  // 128 bytes on end.
  float* dq_sums = nullptr;
};

// Kernels for a T, compiled for head sizes of 64, 96, 128 and 256. Rows of q, k, v and dout are
// multiples of 16 bytes and start at such; any others are not.
template <typename T>
void launch_attention_fwd(const Exec& exec, const AttentionParams& params);
// dk and dv; adds to dq_sums unless that is null.
template <typename T>
void launch_attention_bwd_keys(const Exec& exec, const AttentionParams& params);
// dq
template <typename T>
void launch_attention_bwd_queries(const Exec& exec, const AttentionParams& params);

// ---- Helpers of those launchers ----

// fn.template operator()<n>() for the compiled head size n that holds head_size.
template <typename Fn>
void dispatch_head_size(int64_t head_size, Fn&& fn) {
  if (head_size <= 64) return fn.template operator()<64>();
  if (head_size <= 96) return fn.template operator()<96>();
  if (head_size <= 128) return fn.template operator()<128>();
  fn.template operator()<256>();
}

// fn.template operator()<kRoom>() for the largest tiles that a block has the shared memory for.
// Family::Tiles<kRoom>: what a block has there. Throws UnavailableError where none fits.
template <class Family, typename Fn>
void dispatch_room(const Exec& exec, Fn&& fn) {
  constexpr size_t kUsual = sizeof(typename Family::template Tiles<Room::kUsual>);
  const size_t has = gpu_model(exec.device.arch).block_shared_bytes;
  if (kUsual <= has) return fn.template operator()<Room::kUsual>();
  if constexpr (kUsual > kGraphicsBlockShared) {
    static_assert(sizeof(typename Family::template Tiles<Room::kGraphics>) <= kGraphicsBlockShared);
    if (has >= kGraphicsBlockShared) return fn.template operator()<Room::kGraphics>();
  }
  if constexpr (kHasLeastRoom && kUsual > kLeastBlockShared) {
    if constexpr (sizeof(typename Family::template Tiles<Room::kLeast>) <= kLeastBlockShared) {
      return fn.template operator()<Room::kLeast>();
    }
  }
  throw UnavailableError(cat("attention: ", exec.device, " has ", has >> 10,
                             " KiB of shared memory for a block, too little for the gradients of "
                             "heads of this size; use smaller heads"));
}

// fn.template operator()<kLists>(): whether the problem has BlockLists.
template <typename Fn>
void dispatch_lists(const AttentionProblem& p, Fn&& fn) {
  if (p.keys_of_queries.begins != nullptr) return fn.template operator()<true>();
  fn.template operator()<false>();
}

// For blocks that own a tile of that many queries, or of keys.
BlockOrder order_by_queries(const AttentionProblem& p, int tile);
BlockOrder order_by_keys(const AttentionProblem& p, int tile);

}  // namespace shale::kernels::SHALE_BACKEND
