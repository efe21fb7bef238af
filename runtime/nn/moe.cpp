#include "shale/runtime/nn/moe.h"

#include <utility>

#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/nn/cut_sequence.h"
#include "shale/runtime/nn/exchange.h"
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

bool MoE::accepts(const Parameter& parameter, const Partition& partition) const {
  if (parameter.owner == &gate) return partition.share == LeafShare::kRepeated;
  if (parameter.owner != &experts || partition.share != LeafShare::kCut) return false;
  return partition.dim == (&parameter == &experts.down_proj ? 2 : 1);
}

Exchange* MoE::sharing_ranks() const {
  return expert_exchange() == nullptr ? exchange() : nullptr;
}

std::vector<Exchange*> MoE::token_ranks() const {
  std::vector<Exchange*> ranks;
  if (expert_exchange() != nullptr && exchange() != nullptr) ranks.push_back(exchange());
  if (sequence() != nullptr) ranks.push_back(&sequence()->exchange());
  return ranks;
}

bool MoE::is_first_rank() const {
  return sharing_ranks() == nullptr || sharing_ranks()->rank() == 0;
}

Tensor MoE::forward(const Tensor& x, const Tensor& residual) {
  return run(x, residual, [this](const Tensor& in, const Tensor& stream) {
    const Tensor rest = shared_experts != nullptr ? shared_experts->forward(in, stream) : stream;
    return across(sharing_ranks(), in, rest,
                  [this](const Tensor& rows, const Tensor& to) { return mix(rows, to); });
  });
}

// Of a balance loss whose tokens are not all here; else nothing.
CountsOfParts MoE::counts_of(const Tensor& x) const {
  if (token_ranks().empty() || router_.balance_loss == 0 || !is_first_rank() ||
      !needs_grad(x.context(), {x, gate.weight.value})) {
    return {};
  }
  int64_t tokens = x.numel() / x.size(-1);
  for (const Exchange* const ranks : token_ranks()) tokens *= ranks->ranks();
  return {.all = empty(x.context(), {1, gate.weight.whole[0]}, DType::kI32), .tokens = tokens};
}

// What the model is trained on besides its loss, and the count of tokens, are the first rank's.
Tensor MoE::mix(const Tensor& x, const Tensor& residual) {
  const CountsOfParts counts = counts_of(x);
  const int64_t width = x.size(-1);
  const Tensor tokens = reshape(x, {-1, width});
  const AutogradModes& modes = x.context().autograd();
  const bool is_counted = modes.training && !modes.recomputing && is_first_rank();
  const Tensor bias = router_bias_ != nullptr ? router_bias_->value : Tensor();
  RouterOptions options = router_;
  if (!is_first_rank()) options.balance_loss = options.z_loss = 0;
  const Routing routing =
      moe_route(tokens, gate.weight.value, bias, options, is_counted ? loads_ : Tensor(), counts);
  const Tensor rows = through_experts(moe_permute(tokens, routing), routing);
  const Tensor to = residual.defined() ? reshape(residual, {-1, width}) : Tensor();
  const Tensor y = reshape(moe_combine(rows, routing, to), x.shape());
  if (counts.all.defined()) {
    for (Exchange* const ranks : token_ranks()) ranks->add_counts(counts.all);
  }
  return y;
}

Tensor MoE::through_experts(const Tensor& rows, const Routing& routing) {
  const auto products = [&](const Tensor& x, const Tensor& offsets) {
    return grouped_swiglu(x, experts.gate_proj.value, experts.up_proj.value,
                          experts.down_proj.value, offsets, routing.align);
  };
  ExpertExchange* const ranks = expert_exchange();
  if (ranks == nullptr) return products(rows, routing.offsets);
  const ExpertRows plan = expert_rows(*ranks, routing.offsets, rows.size(0));
  return collect(*ranks, plan, products(dispatch(*ranks, plan, rows), plan.offsets));
}

}  // namespace shale::nn
