#include "shale/bench/support/part_names.h"

#include <algorithm>
#include <string_view>

namespace shale::bench {
namespace {

struct SlotLabel {
  std::string_view slot;
  const char* part;
};

constexpr SlotLabel kSlotLabels[] = {
    {"embedding_fwd", "embedding, forward"},
    {"layer_norm_fwd", "norm, forward"},
    {"rms_norm_fwd", "norm, forward"},
    {"attention_fwd", "attention, forward"},
    {"attention_merge", "attention, merging"},
    {"dropout", "dropout"},
    {"decode_blocks", "dequantization"},
    {"encode_blocks", "quantization"},
    {"quantize_fp8", "fp8 operands"},
    {"fp8_gemm", "fp8 GEMMs"},
    {"fp8_largest", "weights to fp8"},
    {"fp8_encode", "weights to fp8"},
    {"fp8_decode", "weights from fp8"},
    {"fp8_operands", "weights from fp8"},
    {"rope", "rotary positions"},
    {"gelu_fwd", "GELU, forward"},
    {"swiglu_fwd", "SwiGLU, forward"},
    {"cross_entropy", "loss and gradient of logits"},
    {"cross_entropy_stats", "loss and gradient of logits"},
    {"cross_entropy_grad", "loss and gradient of logits"},
    {"sum", "sum of losses"},
    {"gelu_bwd", "GELU, backward"},
    {"attention_bwd", "attention, backward"},
    {"layer_norm_bwd", "norm, backward"},
    {"rms_norm_bwd", "norm, backward"},
    {"column_sum", "gradients of biases"},
    {"embedding_bwd", "embedding, backward"},
    {"axpby", "additions and casts"},
    {"mul", "elementwise products"},
    {"copy", "copies"},
    {"fill", "clearing"},
    {"tree_sum", "sums over ranks"},
    {"sum_squares", "norm of the gradient"},
    {"clip_factor", "norm of the gradient"},
    {"update_loss_scale", "loss scale"},
    {"skip_outliers", "gradient norm"},
    {"adamw", "optimizer"},
    {"adamw_8bit", "optimizer"},
    {"lion", "optimizer"},
    {"sgd", "optimizer"},
    {"weight_average", "moving average of weights"},
    {"sign_pack", "1-bit moments"},
    {"sign_mean", "1-bit moments"},
    {"sign_unpack", "1-bit moments"},
    {"adafactor_means", "optimizer"},
    {"adafactor_average", "optimizer"},
    {"adafactor_squares", "optimizer"},
    {"adafactor", "optimizer"},
    {"muon_momentum", "optimizer"},
    {"inverse_norm", "optimizer"},
    {"muon", "optimizer"},
    {"random_normal", "initial values"},
    {"pointwise", "elementwise ops"},
    {"reduce_dims", "sums over dimensions"},
    {"softmax_fwd", "softmax, forward"},
    {"softmax_bwd", "softmax, backward"},
    {"gather", "gather"},
    {"scatter_add", "scatter-add"},
    {"moe_route_fwd", "router, forward"},
    {"moe_route_bwd", "router, backward"},
    {"moe_sort", "sorting of rows by expert"},
    {"moe_balance", "router biases"},
    {"moe_permute", "rows to experts"},
    {"moe_combine", "rows from experts"},
    {"moe_dots", "gradients of routing weights"},
    {"grouped_gemm", "expert GEMMs"},
    {"conv", "convolutions, forward"},
    {"conv_input_grad", "convolutions, input gradient"},
    {"conv_weight_grad", "convolutions, weight gradient"},
    {"max_pool", "pooling, forward"},
    {"max_pool_grad", "pooling, backward"},
    {"batch_moments", "batch norm, forward"},
    {"batch_merge", "batch norm, forward"},
    {"batch_norm", "batch norm, forward"},
    {"batch_norm_sums", "batch norm, backward"},
    {"batch_norm_grad", "batch norm, backward"},
};

}  // namespace

std::string PartNames::of(const kernels::KernelCall& call) const {
  if (call.gemm != nullptr) return of_product(*call.gemm);
  const auto* const found = std::ranges::find(kSlotLabels, call.slot, &SlotLabel::slot);
  return found == std::end(kSlotLabels) ? call.slot : found->part;
}

// A GEMM's operands tell what it computes. y = x w^T: [tokens, in] times a transposed [out, in].
// dx = dy w: [tokens, out] times [out, in]. dw = dy^T x: a transposed [tokens, out] times
// [tokens, in].
std::string PartNames::of_product(const kernels::GemmArgs& args) const {
  const MatmulSpec s = matmul_spec(args);
  const bool is_forward = !s.a_transposed && s.b_transposed;
  const bool is_dw = s.a_transposed && !s.b_transposed;
  const bool is_dx = !s.a_transposed && !s.b_transposed;
  const int64_t in = is_forward ? s.k : s.n;
  const int64_t out = is_forward ? s.n : is_dw ? s.m : s.k;
  std::string name;
  for (const models::NamedProduct& product : products_) {
    if (product.in != in || product.out != out) continue;
    // Layers with the same sizes share a part, named after all of them.
    name += cat(name.empty() ? "" : " and ", product.name);
  }
  const std::string epilogue = epilogue_name(args);
  if (name.empty() || !(is_forward || is_dw || is_dx)) return cat(shape_name(s), epilogue);
  name += is_forward ? ", forward" : is_dw ? ", weight gradient" : ", input gradient";
  if (!epilogue.empty()) name += " (" + epilogue.substr(1) + ")";
  return name;
}

}  // namespace shale::bench
