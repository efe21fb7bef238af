#pragma once

#include <tuple>

#include "shale/kernels/adafactor.h"
#include "shale/kernels/attention.h"
#include "shale/kernels/batch_norm.h"
#include "shale/kernels/block_codes.h"
#include "shale/kernels/conv.h"
#include "shale/kernels/elementwise.h"
#include "shale/kernels/embedding.h"
#include "shale/kernels/fp8.h"
#include "shale/kernels/fp8_shard.h"
#include "shale/kernels/gemm.h"
#include "shale/kernels/grouped_gemm.h"
#include "shale/kernels/index.h"
#include "shale/kernels/loss.h"
#include "shale/kernels/loss_scale.h"
#include "shale/kernels/moe.h"
#include "shale/kernels/muon.h"
#include "shale/kernels/norm.h"
#include "shale/kernels/one_bit.h"
#include "shale/kernels/optim.h"
#include "shale/kernels/pointwise.h"
#include "shale/kernels/pool.h"
#include "shale/kernels/random.h"
#include "shale/kernels/reduce.h"
#include "shale/kernels/reduce_dims.h"
#include "shale/kernels/rope.h"
#include "shale/kernels/softmax.h"
#include "shale/kernels/tree_sum.h"

namespace shale::kernels {

// Slots with a kernel on every device, below the names of the headers that declare them. The
// registries fill their device's entries from this list, so a new slot is named only here and in
// its own header.
inline auto slots_on_all_devices() {
  return std::tie(
      // adafactor.h:
      adafactor_means, adafactor_average, adafactor_squares, adafactor,
      // attention.h:
      attention_fwd, attention_bwd, attention_merge,
      // batch_norm.h:
      batch_moments, batch_merge, batch_norm, batch_norm_sums, batch_norm_grad,
      // block_codes.h:
      decode_blocks, encode_blocks,
      // conv.h, pool.h:
      conv, conv_input_grad, conv_weight_grad, max_pool, max_pool_grad,
      // elementwise.h:
      axpby, mul, fill, copy, gelu_fwd, gelu_bwd, swiglu_fwd, dropout,
      // embedding.h:
      embedding_fwd, embedding_bwd,
      // fp8.h, fp8_shard.h:
      quantize_fp8, fp8_gemm, fp8_largest, fp8_encode, fp8_decode, fp8_operands,
      // gemm.h, grouped_gemm.h:
      gemm, grouped_gemm,
      // index.h:
      gather, scatter_add,
      // loss.h, loss_scale.h:
      cross_entropy, cross_entropy_stats, cross_entropy_grad, update_loss_scale, skip_outliers,
      // moe.h:
      moe_route_fwd, moe_route_bwd, moe_sort, moe_balance, moe_permute, moe_combine, moe_dots,
      // muon.h:
      muon_momentum, inverse_norm, muon,
      // norm.h:
      layer_norm_fwd, layer_norm_bwd, rms_norm_fwd, rms_norm_bwd,
      // one_bit.h:
      sign_pack, sign_mean, sign_unpack,
      // optim.h:
      adamw, adamw_8bit, lion, sgd, weight_average,
      // pointwise.h:
      pointwise,
      // random.h:
      random_normal,
      // rope.h:
      rope,
      // reduce.h, reduce_dims.h, softmax.h, tree_sum.h:
      column_sum, sum, sum_squares, clip_factor, reduce_dims, softmax_fwd, softmax_bwd, tree_sum);
}

// Slots with a kernel only on the CPU; callers must check filled(). There are none at present.
inline auto slots_on_cpu_alone() {
  return std::tie();
}

inline auto all_slots() {  // all slots
  return std::tuple_cat(slots_on_all_devices(), slots_on_cpu_alone());
}

}  // namespace shale::kernels
