#include "shale/runtime/nn/moe.h"

#include <utility>

#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/ops/grouped_swiglu.h"
#include "shale/runtime/ops/shape.h"
#include "shale/runtime/tensor/autograd_state.h"

namespace shale::nn {

MoE::Experts::Experts(Module* parent, const Config& config)
    : Module(parent, "experts"),
      gate_proj(declare("gate_proj", {config.experts, config.hidden, config.width}, config.init)),
      up_proj(declare("up_proj", {config.experts, config.hidden, config.width}, config.init)),
      down_proj(
          declare("down_proj", {config.experts, config.width, config.hidden}, config.down_init)) {
  gate_proj.split = up_proj.split = {.share = Share::kShard, .dim = 1, .by_expert = true};
  down_proj.split = {.share = Share::kShard, .dim = 2, .by_expert = true};
}

MoE::MoE(Module* parent, std::string name, const Config& config)
    : Module(parent, std::move(name)),
      gate(this, "gate", config.width, config.experts, config.init, Bias::kNo),
      experts(this, config),
      router_(config.router) {
  replicate({&gate});
  if (config.shared_hidden == 0) return;
  shared_experts = std::make_unique<SwiGlu>(this, "shared_experts",
                                            SwiGlu::Config{.width = config.width,
                                                           .hidden = config.shared_hidden,
                                                           .init = config.init,
                                                           .down_init = config.down_init});
}

void MoE::count_loads(Tensor loads, Tensor bias) {
  loads_ = std::move(loads);
  if (router_bias_ == nullptr && bias.defined()) {
    router_bias_ = &declare_buffer({.name = "router_bias", .shape = {expert_count()}});
  }
  if (router_bias_ != nullptr) router_bias_->value = std::move(bias);
}

Tensor MoE::forward(const Tensor& x, const Tensor& residual) {
  return run(x, residual, [this](const Tensor& in, const Tensor& stream) {
    const Tensor rest = shared_experts != nullptr ? shared_experts->forward(in, stream) : stream;
    return distribution().across_experts(
        in, rest, [this](const Tensor& rows, const Tensor& to) { return mix(rows, to); });
  });
}

// Returns memory for the counts of all ranks, which the balance loss needs if other ranks route
// tokens of the same micro-batch. Otherwise returns nothing.
CountsOfParts MoE::counts_of(const Tensor& x) const {
  const int64_t here = x.numel() / x.size(-1), tokens = distribution().routed_tokens(here);
  if (tokens == here || router_.balance_loss == 0 || !distribution().counts_routed() ||
      !needs_grad(x.context(), {x, gate.weight.value})) {
    return {};
  }
  return {.all = empty(x.context(), {1, gate.weight.whole[0]}, DType::kI32), .tokens = tokens};
}

// If several ranks route the same tokens, only the first adds the auxiliary losses and counts
// tokens.
Tensor MoE::mix(const Tensor& x, const Tensor& residual) {
  const CountsOfParts counts = counts_of(x);
  const int64_t width = x.size(-1);
  const Tensor tokens = reshape(x, {-1, width});
  const AutogradModes& modes = x.context().autograd();
  const bool counts_rows = distribution().counts_routed();
  const bool is_counted = modes.training && !modes.recomputing && counts_rows;
  const Tensor bias = router_bias_ != nullptr ? router_bias_->value : Tensor();
  RouterOptions options = router_;
  if (!counts_rows) options.balance_loss = options.z_loss = 0;
  const Routing routing =
      moe_route(tokens, gate.weight.value, bias, options, is_counted ? loads_ : Tensor(), counts);
  const Tensor rows = through_experts(moe_permute(tokens, routing), routing);
  const Tensor to = residual.defined() ? reshape(residual, {-1, width}) : Tensor();
  const Tensor y = reshape(moe_combine(rows, routing, to), x.shape());
  if (counts.all.defined()) distribution().sum_routed(counts.all);
  return y;
}

Tensor MoE::through_experts(const Tensor& rows, const Routing& routing) {
  const auto products = [&](const Tensor& x, const Tensor& offsets) {
    return grouped_swiglu(x, experts.gate_proj.value, experts.up_proj.value,
                          experts.down_proj.value, offsets, routing.align);
  };
  return distribution().through_experts(rows, routing.offsets, products);
}

}  // namespace shale::nn
