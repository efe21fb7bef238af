#include "shale/runtime/optim/lamb.h"

#include <utility>

#include "shale/runtime/tensor/context.h"

namespace shale::optim {
namespace {

// Of states(), as they are added.
enum State : size_t { kM, kV };

}  // namespace

Lamb::Lamb(std::vector<OptimShard> shards, const LambOptions& options)
    : ElementwiseOptimizer(std::move(shards), options.weight_decay, Runs::kOfParameters),
      options_(options),
      steps_("lamb", this->shards(), options) {
  add_states("m");
  add_states("v");
  if (steps_.count() == 0) return;
  Context& context = this->shards().front().grad.context();
  ratios_ = empty(context, {steps_.count()}, DType::kF32, MemoryTag::kOptimizer, "lamb");
  rates_ = empty(context, {steps_.count()}, DType::kF32, MemoryTag::kOptimizer, "lamb");
}

void Lamb::set_corrections(StepState& values, int64_t done) const {
  values.bias_correction1 = correction(options_.beta1, done + 1);
  values.bias_correction2 = correction(options_.beta2, done + 1);
}

LambSpan Lamb::span_of(size_t shard, const OptimRun& run) const {
  return {.master = part(shards()[shard].master, run),
          .m = part(state(shard, kM), run),
          .v = part(state(shard, kV), run),
          .weight_decay = run.weight_decay};
}

void Lamb::begin_step() {
  if (steps_.count() == 0) return;
  hold_values();  // throws for shards that were clipped apart: kernels are called with one's values
  const Exec exec = this->exec(0);
  steps_.begin_norms(exec);
  for (size_t i = 0; i < shards().size(); ++i) {
    for (const OptimRun& run : runs(i)) {
      const LambSpan span = span_of(i, run);
      steps_.add_gradient(exec, part(shards()[i].grad, run), span.m, span.v);
      if (shards()[i].repeats) continue;
      steps_.add_norms(exec, steps_.number_of(*run.parameter), span);
    }
  }
  steps_.join_norms(exec);
  steps_.make_ratios(exec, ratios_);
  steps_.make_rates(exec, ratios_, rates_);
}

void Lamb::step_run(size_t shard, const OptimRun& run, const View& compute) {
  LambSpan span = span_of(shard, run);
  span.compute = compute;
  steps_.step(exec(shard), rates_, steps_.number_of(*run.parameter), span);
}

}  // namespace shale::optim
