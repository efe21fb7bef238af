#include "runtime/optim/optimizer.h"

#include <cmath>

#include "kernels/optim.h"

namespace shale::optim {
namespace {

View part(const Tensor& vector, const OptimSpan& span) {
  return vector.defined() ? vector_slice(vector, span.offset, span.count).view() : View{};
}

}  // namespace

void Optimizer::prepare(Context& context, int64_t step, float lr) {
  context.update_step([&](StepState& state) {
    state.lr = lr;
    state.step = static_cast<uint64_t>(step);
  });
  context.reset_step_results();
}

void Optimizer::step() {
  complete_gradients(shards_);
  for (size_t i = 0; i < shards_.size(); ++i) {
    for (const OptimSpan& span : shards_[i].spans) {
      step_span(i, span);
      span.parameter->value.bump_version();
    }
  }
}

void Optimizer::add_state(const std::string& name) {
  for (size_t i = 0; i < shards_.size(); ++i) {
    const Tensor& grad = shards_[i].grad;
    states_.push_back(
        {.name = name,
         .value = zeros(grad.context(), grad.shape(), DType::kF32, MemoryTag::kOptimizer),
         .shard = i});
  }
}

AdamW::AdamW(std::vector<OptimShard> shards, const AdamWOptions& options)
    : Optimizer(std::move(shards)), options_(options) {
  add_state("m");
  add_state("v");
}

void AdamW::prepare(Context& context, int64_t step, float lr) {
  Optimizer::prepare(context, step, lr);
  context.update_step([&](StepState& state) {
    const auto t = static_cast<double>(step + 1);
    state.bias_correction1 = static_cast<float>(1 - std::pow(double(options_.beta1), t));
    state.bias_correction2 = static_cast<float>(1 - std::pow(double(options_.beta2), t));
  });
}

void AdamW::step_span(size_t index, const OptimSpan& span) {
  const OptimShard& shard = shards()[index];
  kernels::adamw(shard.grad.exec(),
                 {.master = part(shard.master, span),
                  .grad = part(shard.grad, span),
                  .m = part(state(index, 0), span),
                  .v = part(state(index, 1), span),
                  .param = part(shard.compute, span),
                  .beta1 = options_.beta1,
                  .beta2 = options_.beta2,
                  .eps = options_.eps,
                  .weight_decay = span.parameter->decay ? options_.weight_decay : 0});
}

Sgd::Sgd(std::vector<OptimShard> shards, const SgdOptions& options)
    : Optimizer(std::move(shards)), options_(options) {
  if (options_.momentum != 0) add_state("momentum");
}

void Sgd::step_span(size_t index, const OptimSpan& span) {
  const OptimShard& shard = shards()[index];
  kernels::sgd(shard.grad.exec(),
               {.master = part(shard.master, span),
                .grad = part(shard.grad, span),
                .m = options_.momentum != 0 ? part(state(index, 0), span) : View{},
                .param = part(shard.compute, span),
                .momentum = options_.momentum,
                .weight_decay = span.parameter->decay ? options_.weight_decay : 0});
}

}  // namespace shale::optim
