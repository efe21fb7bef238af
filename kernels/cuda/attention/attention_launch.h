#pragma once

#include "shale/base/error.h"
#include "shale/base/gpu_model.h"
#include "shale/kernels/attention_problem.h"
#include "shale/kernels/cuda/attention/attention_config.h"
#include "shale/kernels/simt/backend.h"

// Shared by attention.cu, which prepares the arguments, and the files with the kernels.
namespace shale::kernels::SHALE_BACKEND {

// Order in which the blocks of a one-dimensional grid take the tiles of all heads. Long tiles come
// first, so that all blocks end at about the same time. Only heads_at_once heads are processed at a
// time, so that their keys and values fit into the L2 cache.
struct BlockOrder {
  int tiles = 0;  // tiles per head
  int heads = 0;  // heads of all sequences of the batch
  int heads_at_once = 1;
  bool last_first = false;  // true: the last tiles are the longest

  int64_t blocks() const { return int64_t{tiles} * heads; }
};

struct AttentionParams : AttentionProblem {
  float scale_log2 = 0;  // scale * log2(e), for scores in units of log2
  // Factors for a softcap: scale / softcap, softcap / scale, and 1 / softcap in units of log2.
  float cap_in = 0, cap_out = 0, cap_log2 = 0;

  // Arrays that backward needs. In each, a head has padded_queries rows, and the heads follow each
  // other.
  int64_t padded_queries = 0;
  float* lse2 = nullptr;   // log2 of the softmax sum; +inf for queries without keys and for padding
  float* delta = nullptr;  // rowsum(dout * out); 0 for queries without keys and padding
  // dQ / scale in f32, in tiles of 16 rows, each in the order of accumulator fragments: [columns /
  // 8][value][lane]. So a warp that adds one value of its fragments writes 128 contiguous bytes.
  float* dq_sums = nullptr;
};

// Launches attention forward for T, compiled for head sizes of 64, 96, 128 and 256. Rows of q, k, v
// and dout must be multiples of 16 bytes and 16-byte aligned; other tensors need not be.
template <typename T>
void launch_attention_fwd(const Exec& exec, const AttentionParams& params);
// Launches the kernel that computes dk and dv, and adds to dq_sums unless it is null.
template <typename T>
void launch_attention_bwd_keys(const Exec& exec, const AttentionParams& params);
// Launches the kernel that computes dq without atomics.
template <typename T>
void launch_attention_bwd_queries(const Exec& exec, const AttentionParams& params);

// ---- Helpers of these launchers ----

// Calls fn.template operator()<n>() for the smallest compiled head size n >= head_size.
template <typename Fn>
void dispatch_head_size(int64_t head_size, Fn&& fn) {
  if (head_size <= 64) return fn.template operator()<64>();
  if (head_size <= 96) return fn.template operator()<96>();
  if (head_size <= 128) return fn.template operator()<128>();
  fn.template operator()<256>();
}

// Calls fn.template operator()<kRoom>() for the largest tiles that fit the shared memory which this
// GPU allows a block. Family::Tiles<kRoom> is the type of a block's shared memory. Throws
// UnavailableError if no tiles fit.
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

// Calls fn.template operator()<kLists>(), where kLists is true if the problem has BlockLists.
template <typename Fn>
void dispatch_lists(const AttentionProblem& p, Fn&& fn) {
  if (p.keys_of_queries.begins != nullptr) return fn.template operator()<true>();
  fn.template operator()<false>();
}

// Return the order of tiles of `tile` queries, or of `tile` keys, each owned by a block.
BlockOrder order_by_queries(const AttentionProblem& p, int tile);
BlockOrder order_by_keys(const AttentionProblem& p, int tile);

}  // namespace shale::kernels::SHALE_BACKEND
