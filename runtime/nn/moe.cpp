#include "shale/runtime/nn/moe.h"

#include <utility>

#include "shale/runtime/nn/expert_exchange.h"
#include "shale/runtime/ops/grouped_swiglu.h"
#include "shale/runtime/ops/shape.h"
#include "shale/runtime/tensor/autograd_state.h"

namespace shale::nn {

MoE::Experts::Experts(Module* parent, const Config& config)
    : Module(parent, "experts"),
      gate_proj(declare("gate_proj", {config.experts, config.hidden, config.width}, config.init)),
      up_proj(declare("up_proj", {config.experts, config.hidden, config.width}, config.init)),
      down_proj(
          declare("down_proj", {config.experts, config.width, config.hidden}, config.down_init)) {}

MoE::MoE(Module* parent, std::string name, const Config& config)
    : Module(parent, std::move(name)),
      gate(this, "gate", config.width, config.experts, config.init, Bias::kNo),
      experts(this, config),
      router_(config.router) {
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

bool MoE::counts_experts(const Parameter& parameter) const {
  return parameter.owner == &experts;
}

Tensor MoE::forward(const Tensor& x, const Tensor& residual) {
  return run(x, residual, [this](const Tensor& in, const Tensor& stream) {
    const int64_t width = in.size(-1);
    const Tensor rest = shared_experts != nullptr ? shared_experts->forward(in, stream) : stream;
    const Tensor tokens = reshape(in, {-1, width});
    const AutogradModes& modes = in.context().autograd();
    const bool counts = modes.training && !modes.recomputing;
    const Tensor bias = router_bias_ != nullptr ? router_bias_->value : Tensor();
    const Routing routing =
        moe_route(tokens, gate.weight.value, bias, router_, counts ? loads_ : Tensor());
    const Tensor rows = through_experts(moe_permute(tokens, routing), routing);
    const Tensor to = rest.defined() ? reshape(rest, {-1, width}) : Tensor();
    return reshape(moe_combine(rows, routing, to), in.shape());
  });
}

Tensor MoE::through_experts(const Tensor& rows, const Routing& routing) {
  const auto products = [&](const Tensor& x, const Tensor& offsets) {
    return grouped_swiglu(x, experts.gate_proj.value, experts.up_proj.value,
                          experts.down_proj.value, offsets, routing.align);
  };
  ExpertExchange* const exchange = expert_exchange();
  if (exchange == nullptr) return products(rows, routing.offsets);
  const ExpertRows plan = expert_rows(*exchange, routing.offsets, rows.size(0));
  return collect(*exchange, plan, products(dispatch(*exchange, plan, rows), plan.offsets));
}

}  // namespace shale::nn
