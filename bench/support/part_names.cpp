#include "shale/bench/support/part_names.h"

#include <algorithm>
#include <string_view>

#include "shale/base/error.h"

namespace shale::bench {
namespace {

// Rows come in the order of a step. Products of layer i have row 10 i in forward, and so on:
// smaller things stand between them.
constexpr int kForward = 0, kBackward = 100, kUpdate = 200;
constexpr int kLayerRows = 10;

struct SlotPart {
  std::string_view slot;
  int place;
  const char* name;
};

// Layers are QKV (0), attention output (10), FFN up (20), FFN down (30), classifier (40), and in
// backward the other way round, from the classifier (100) to QKV (140).
constexpr SlotPart kSlotParts[] = {
    {"embedding_fwd", kForward - 2, "embedding, forward"},
    {"layer_norm_fwd", kForward - 1, "norm, forward"},
    {"rms_norm_fwd", kForward - 1, "norm, forward"},
    {"attention_fwd", kForward + 5, "attention, forward"},
    {"dropout", kForward + 15, "dropout"},
    {"gelu_fwd", kForward + 25, "GELU, forward"},
    {"swiglu_fwd", kForward + 25, "SwiGLU, forward"},
    {"cross_entropy", kForward + 45, "loss and gradient of logits"},
    {"sum", kForward + 46, "sum of losses"},
    {"gelu_bwd", kBackward + 15, "GELU, backward"},
    {"attention_bwd", kBackward + 35, "attention, backward"},
    {"layer_norm_bwd", kBackward + 50, "norm, backward"},
    {"rms_norm_bwd", kBackward + 50, "norm, backward"},
    {"column_sum", kBackward + 51, "gradients of biases"},
    {"embedding_bwd", kBackward + 52, "embedding, backward"},
    {"axpby", kBackward + 53, "additions and casts"},
    {"mul", kBackward + 54, "products by element"},
    {"copy", kBackward + 55, "copies"},
    {"fill", kBackward + 56, "clearing"},
    {"tree_sum", kUpdate, "sums over ranks"},
    {"sum_squares", kUpdate + 1, "norm of the gradient"},
    {"clip_factor", kUpdate + 1, "norm of the gradient"},
    {"update_loss_scale", kUpdate + 2, "loss scale"},
    {"adamw", kUpdate + 3, "optimizer"},
    {"adamw_8bit", kUpdate + 3, "optimizer"},
    {"lion", kUpdate + 3, "optimizer"},
    {"sgd", kUpdate + 3, "optimizer"},
    {"adafactor_means", kUpdate + 3, "optimizer"},
    {"adafactor_average", kUpdate + 3, "optimizer"},
    {"adafactor_squares", kUpdate + 3, "optimizer"},
    {"adafactor", kUpdate + 3, "optimizer"},
    {"random_normal", kUpdate + 4, "initial values"},
};

}  // namespace

PartNames::PartNames(const models::LanguageModelConfig& model)
    : layers_({{"QKV", model.width, 3 * model.width},
               {"attention output", model.width, model.width},
               {"FFN up", model.width, 4 * model.width},
               {"FFN down", 4 * model.width, model.width},
               {"classifier", model.width, model.padded_vocab}}) {}

NamedPart PartNames::of(const KernelCall& call) const {
  if (call.gemm != nullptr) return of_product(*call.gemm);
  const std::string_view slot = call.slot;
  const auto* const found = std::find_if(std::begin(kSlotParts), std::end(kSlotParts),
                                         [&](const SlotPart& part) { return part.slot == slot; });
  if (found == std::end(kSlotParts)) {
    throw InternalError(
        cat("step breakdown: slot ", slot, " has no place in bench/support/", "part_names.cpp"));
  }
  return {.place = found->place, .name = found->name};
}

// y = x w^T is [tokens, in] times a transposed [out, in]; dx = dy w is [tokens, out] times
// [out, in]; dw = dy^T x is a transposed [tokens, out] times [tokens, in].
NamedPart PartNames::of_product(const kernels::GemmArgs& args) const {
  const MatmulSpec s = matmul_spec(args);
  const bool is_forward = !s.a_transposed && s.b_transposed;
  const bool is_dw = s.a_transposed && !s.b_transposed;
  const bool is_dx = !s.a_transposed && !s.b_transposed;
  const int64_t in = is_forward ? s.k : s.n;
  const int64_t out = is_forward ? s.n : is_dw ? s.m : s.k;
  NamedPart part;
  const int last = static_cast<int>(layers_.size()) - 1;
  for (int i = 0; i <= last; ++i) {
    const Layer& layer = layers_[size_t(i)];
    if (layer.in != in || layer.out != out) continue;
    // In a model where two layers have one size they are one part.
    part.name += cat(part.name.empty() ? "" : " and ", layer.name);
    part.place = is_forward ? kForward + kLayerRows * i
                            : kBackward + kLayerRows * (last - i) + (is_dw ? 1 : 0);
  }
  if (part.name.empty() || !(is_forward || is_dw || is_dx)) {
    throw InternalError(
        cat("step breakdown: no layer of the model has the product ", gemm_name(args)));
  }
  part.name += is_forward ? ", forward" : is_dw ? ", weight gradient" : ", input gradient";
  const std::string epilogue = epilogue_name(args);
  if (!epilogue.empty()) part.name += " (" + epilogue.substr(1) + ")";
  return part;
}

}  // namespace shale::bench
