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

Exchange* MoE::leaves() const {
  return expert_exchange() == nullptr ? exchange() : nullptr;
}

std::vector<Exchange*> MoE::token_ranks() const {
  std::vector<Exchange*> ranks;
  if (expert_exchange() != nullptr && exchange() != nullptr) ranks.push_back(exchange());
  if (sequence() != nullptr) ranks.push_back(&sequence()->exchange());
  return ranks;
}

bool MoE::is_first_leaf(size_t leaf) const {
  return leaf == 0 && (leaves() == nullptr || leaves()->first_leaf() == 0);
}

Tensor MoE::forward(const Tensor& x, const Tensor& residual) {
  return run(x, residual, [this](const Tensor& in, const Tensor& stream) {
    const Tensor rest = shared_experts != nullptr ? shared_experts->forward(in, stream) : stream;
    return over_leaves(leaves(), in, rest,
                       [this](const Tensor& rows, size_t leaf, const Tensor& to) {
                         return part_of_leaf(rows, leaf, to);
                       });
  });
}

// Of a balance loss whose tokens are not all here, or not routed at once; else nothing.
CountsOfParts MoE::counts_of(const Tensor& x, size_t leaf) const {
  if (token_ranks().empty() || router_.balance_loss == 0 || !is_first_leaf(leaf) ||
      !needs_grad(x.context(), {x, gate.weight.value_of(leaf)})) {
    return {};
  }
  const int64_t parts = sequence() != nullptr ? sequence()->parts().count : 1;
  int64_t tokens = x.numel() / x.size(-1);
  for (const Exchange* const ranks : token_ranks()) tokens *= ranks->ranks();
  return {.all = empty(x.context(), {parts, gate.weight.whole[0]}, DType::kI32), .tokens = tokens};
}

Tensor MoE::part_of_leaf(const Tensor& x, size_t leaf, const Tensor& residual) {
  CountsOfParts counts = counts_of(x, leaf);
  const Tensor y =
      over_parts(sequence(), x, residual, [&](const Tensor& rows, const Tensor& rest, size_t part) {
        counts.part = static_cast<int64_t>(part);
        return part_of_tokens(rows, rest, leaf, counts);
      });
  if (counts.all.defined()) {
    for (Exchange* const ranks : token_ranks()) ranks->add_counts(counts.all);
  }
  return y;
}

// What the model is trained on besides its loss, and the count of tokens, are the first leaf's.
Tensor MoE::part_of_tokens(const Tensor& x, const Tensor& residual, size_t leaf,
                           const CountsOfParts& counts) {
  const auto part = static_cast<size_t>(counts.part);
  const int64_t width = x.size(-1);
  const Tensor tokens = reshape(x, {-1, width});
  const AutogradModes& modes = x.context().autograd();
  const bool is_counted = modes.training && !modes.recomputing && is_first_leaf(leaf);
  const Tensor bias = router_bias_ != nullptr ? router_bias_->value : Tensor();
  RouterOptions options = router_;
  if (!is_first_leaf(leaf)) options.balance_loss = options.z_loss = 0;
  const Routing routing = moe_route(tokens, gate.weight.value_of(leaf, part), bias, options,
                                    is_counted ? loads_ : Tensor(), counts);
  const Tensor rows = through_experts(moe_permute(tokens, routing), routing, leaf, part);
  const Tensor to = residual.defined() ? reshape(residual, {-1, width}) : Tensor();
  return reshape(moe_combine(rows, routing, to), x.shape());
}

Tensor MoE::through_experts(const Tensor& rows, const Routing& routing, size_t leaf, size_t part) {
  const auto products = [&](const Tensor& x, const Tensor& offsets) {
    return grouped_swiglu(x, experts.gate_proj.value_of(leaf, part),
                          experts.up_proj.value_of(leaf, part),
                          experts.down_proj.value_of(leaf, part), offsets, routing.align);
  };
  ExpertExchange* const ranks = expert_exchange();
  if (ranks == nullptr) return products(rows, routing.offsets);
  const ExpertRows plan = expert_rows(*ranks, routing.offsets, rows.size(0));
  return collect(*ranks, plan, products(dispatch(*ranks, plan, rows), plan.offsets));
}

}  // namespace shale::nn
