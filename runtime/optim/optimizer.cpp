#include "shale/runtime/optim/optimizer.h"

#include "shale/base/error.h"
#include "shale/kernels/elementwise.h"

namespace shale::optim {

std::vector<OptimRun> runs_of(const OptimShard& shard) {
  std::vector<OptimRun> runs;
  for (const OptimSpan& span : shard.spans) {
    if (span.count == 0) continue;
    const bool decay = span.parameter->decay;
    if (runs.empty() || runs.back().decay != decay) {
      runs.push_back({.offset = span.offset, .count = 0, .decay = decay});
    }
    OptimRun& run = runs.back();
    if (span.offset < run.offset + run.count) {
      throw InternalError(cat("optimizer: in ", shard.name, " ", span.parameter->full_name(),
                              " begins at ", span.offset,
                              ", before the end of the span before it"));
    }
    run.count = span.offset + span.count - run.offset;
  }
  return runs;
}

void Optimizer::prepare(Context& context, int64_t step, float lr) {
  context.update_step([&](StepState& state) {
    state.lr = lr;
    state.step = static_cast<uint64_t>(step);
  });
  context.reset_step_results();
  set_updates(context, step);
}

void Optimizer::step() {
  complete_gradients(shards_);
  begin_step();
  for (size_t i = 0; i < shards_.size(); ++i) {
    update(i, shards_[i].compute);
    for (const OptimSpan& span : shards_[i].spans) span.parameter->value.bump_version();
    if (shards_[i].changed != nullptr) shards_[i].changed();
  }
}

Tensor Optimizer::add_state(OptimState state, int64_t count, DType dtype, double initial) {
  const OptimShard& shard = shards_[state.shard];
  state.value = empty(shard.grad.context(), {count}, dtype, MemoryTag::kOptimizer, shard.name);
  kernels::fill(state.value.exec(), {.y = state.value, .value = initial});
  states_.push_back(std::move(state));
  return states_.back().value;
}

std::vector<StatePart> Optimizer::state_parts() const {
  std::vector<StatePart> parts;
  for (const OptimState& state : states_) {
    const int64_t block = state.block;
    for (const OptimSpan& span : shards_[state.shard].spans) {
      const Shape& shape = span.parameter->shape;
      const int64_t whole = span.parameter->numel();
      // Spans begin at multiples of the alignment of flat buffers, which is one of every block.
      const int64_t first = span.count > 0 ? span.first : 0;
      if (first % block != 0 || span.offset % block != 0) {
        throw InternalError(cat("optimizer: a part of ", span.parameter->full_name(),
                                " begins at element ", first, ", its state ", state.name,
                                " has a value per ", block, " elements"));
      }
      parts.push_back({.name = cat(span.parameter->full_name(), "/", state.name),
                       .parameter = span.parameter,
                       .shape = block == 1 ? shape : Shape{(whole + block - 1) / block},
                       .first = first / block,
                       .values = vector_slice(state.value, span.offset / block,
                                              (span.count + block - 1) / block)});
    }
  }
  return parts;
}

ElementwiseOptimizer::ElementwiseOptimizer(std::vector<OptimShard> shards)
    : Optimizer(std::move(shards)) {
  for (const OptimShard& shard : this->shards()) runs_.push_back(runs_of(shard));
}

void ElementwiseOptimizer::update(size_t shard, const Tensor& compute) {
  for (const OptimRun& run : runs_[shard]) step_run(shard, run, part(compute, run));
}

void ElementwiseOptimizer::add_states(const std::string& name, DType dtype, int64_t block,
                                      double initial) {
  for (size_t i = 0; i < shards().size(); ++i) {
    const int64_t count = (shards()[i].grad.numel() + block - 1) / block;
    add_state({.name = name, .value = {}, .shard = i, .block = block}, count, dtype, initial);
  }
}

View ElementwiseOptimizer::part(const Tensor& vector, const OptimRun& run, int64_t block) {
  if (!vector.defined()) return {};
  if (run.offset % block != 0) {
    throw InternalError(cat("optimizer: a span begins at element ", run.offset,
                            ", its state has a value per ", block, " elements"));
  }
  return vector_slice(vector, run.offset / block, (run.count + block - 1) / block).view();
}

}  // namespace shale::optim
