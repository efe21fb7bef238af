#pragma once

#include "shale/base/error.h"
#include "shale/kernels/cuda/attention/attention90_config.h"
#include "shale/kernels/cuda/attention/attention90_tile.cuh"

namespace shale::kernels::SHALE_BACKEND {

// Arguments of a backward kernel, for dK and dV (by keys) or for dQ (by queries).
struct Bwd90Params {
  TensorMap q, k, v, dout;
  AttentionParams problem;
  BlockOrder order;

  __device__ __forceinline__ void prefetch_maps() const {
    prefetch_tensor_map(q);
    prefetch_tensor_map(k);
    prefetch_tensor_map(v);
    prefetch_tensor_map(dout);
  }
};

// Makes the kernel arguments for tiles of kQueries rows of Q and dO and kKeys rows of K and V.
template <int kQueries, int kKeys>
Bwd90Params bwd90_params(const AttentionParams& p, const BlockOrder& order) {
  const auto query_map = [&](const HeadView& view) {
    return rows_map<kQueries>(view, p.dtype, p.batch, p.queries, p.heads, p.head_size);
  };
  const auto key_map = [&](const HeadView& view) {
    return rows_map<kKeys>(view, p.dtype, p.batch, p.keys, p.kv_heads, p.head_size);
  };
  return {.q = query_map(p.q),
          .k = key_map(p.k),
          .v = key_map(p.v),
          .dout = query_map(p.dout),
          .problem = p,
          .order = order};
}

// Calls fn.template operator()<kHeadSize>() for a supported head size.
template <class Fn>
void with_bwd90_head_size(int64_t head_size, const Fn& fn) {
  switch (head_size) {
    case 64: return fn.template operator()<64>();
    case 96: return fn.template operator()<96>();
    case 128: return fn.template operator()<128>();
    case 192: return fn.template operator()<192>();
    case 256: return fn.template operator()<256>();
    default:
      throw InternalError(cat("attention: no Hopper kernel for gradients of heads of ", head_size));
  }
}

}  // namespace shale::kernels::SHALE_BACKEND
