#include "shale/runtime/optim/optimizer.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "shale/base/error.h"
#include "shale/kernels/elementwise.h"
#include "shale/kernels/optim.h"
#include "shale/runtime/tensor/autograd_state.h"
#include "shale/runtime/tensor/context.h"
#include "shale/runtime/tensor/storage.h"

namespace shale::optim {
namespace {

// Offset of the last fields of StepState, which clip_grad_norm() writes.
constexpr size_t kResults = offsetof(StepState, grad_norm);

std::byte* results_in(const Storage& values) {
  return static_cast<std::byte*>(values.data()) + kResults;
}

// Returns the clip factor that clip_grad_norm() computed for this shard's parameters.
const Tensor& clipped_of(const OptimShard& shard) {
  const ShardGradient& gradient = *shard.gradient;
  if (gradient.clipped_apart.empty() || shard.spans.empty()) return gradient.clipped;
  const auto find = [&](const OptimSpan& span) -> const Tensor& {
    const auto apart = gradient.clipped_apart.find(span.parameter);
    return apart != gradient.clipped_apart.end() ? apart->second : gradient.clipped;
  };
  const Tensor& first = find(shard.spans.front());
  for (const OptimSpan& span : shard.spans) {
    if (find(span).impl_ptr() == first.impl_ptr()) continue;
    throw ConfigError(cat("optimizer: in ", shard.name, " the gradients of ",
                          shard.spans.front().parameter->full_name(), " and ",
                          span.parameter->full_name(),
                          " were clipped separately; use one optimizer for each"));
  }
  return first;
}

}  // namespace

float decay_of(const OptimSpan& span, float weight_decay) {
  return span.options.weight_decay.value_or(span.parameter->decay ? weight_decay : 0);
}

std::vector<OptimRun> runs_of(const OptimShard& shard, float weight_decay, Runs kind) {
  const bool gaps_are_padding = shard.is_whole();
  std::vector<OptimRun> runs;
  int64_t end = 0;
  for (const OptimSpan& span : shard.spans) {
    if (span.count == 0) continue;
    if (span.offset < end) {
      throw InternalError(cat("optimizer: in ", shard.name, ", ", span.parameter->full_name(),
                              " begins at ", span.offset, ", before the end of the previous span"));
    }
    const OptimRun alone = {.offset = span.offset,
                            .count = span.count,
                            .lr_factor = span.options.lr_factor,
                            .weight_decay = decay_of(span, weight_decay),
                            .parameter = span.parameter};
    const bool joins =
        kind == Runs::kJoined && !runs.empty() && runs.back().lr_factor == alone.lr_factor &&
        runs.back().weight_decay == alone.weight_decay && (gaps_are_padding || span.offset == end);
    end = span.offset + span.count;
    if (joins) {
      runs.back().count = end - runs.back().offset;
    } else {
      runs.push_back(alone);
    }
  }
  return runs;
}

// ---- Per-step values ----

float Optimizer::correction(float beta, int64_t updates) {
  return static_cast<float>(1 - std::pow(double{beta}, static_cast<double>(updates)));
}

Optimizer::Optimizer(std::vector<OptimShard> shards) : shards_(std::move(shards)) {
  for (const OptimShard& shard : shards_) values_of(shard.grad.context());
}

Optimizer::Values& Optimizer::values_of(const Context& context) {
  for (Values& values : values_) {
    if (values.context == &context) return values;
  }
  auto& owner = const_cast<Context&>(context);
  values_.push_back({.context = &owner,
                     .memory = owner.allocate(sizeof(StepState), MemoryTag::kData, "step values")});
  return values_.back();
}

StepState& Optimizer::values_in(const Context& context) {
  return *static_cast<StepState*>(values_of(context).memory->data());
}

// Uploads the first `bytes` bytes of host_values_.
void Optimizer::upload(size_t bytes) {
  Context& context = *prepared_->context;
  if (prepared_->memory.use_count() > 1) {
    const auto held = std::exchange(
        prepared_->memory, context.allocate(sizeof(StepState), MemoryTag::kData, "step values"));
    if (bytes < sizeof(StepState)) {
      context.copy(prepared_->memory->data(), held->data(), sizeof(StepState));
    }
  }
  context.copy(prepared_->memory->data(), &host_values_, static_cast<int64_t>(bytes));
}

namespace {

// Throws for a parameter that was frozen after memory for its gradient was allocated.
void check_trainable(const Parameter& parameter) {
  if (parameter.trainable) return;
  throw ConfigError(cat("optimizer: ", parameter.full_name(),
                        " has memory for a gradient, but Parameter::trainable is false now; set "
                        "trainable before the model's memory is allocated; to freeze the parameter "
                        "for some steps only, give it an optimizer of its own "
                        "(select_parameters()) and do not step that optimizer in these steps"));
}

}  // namespace

void Optimizer::check_prepared() const {
  if (prepared_ != nullptr) return;
  throw InternalError(
      "optimizer: step() was called before prepare(), which sets the learning rate");
}

void Optimizer::prepare(Context& context, int64_t step, float lr) {
  for (const OptimShard& shard : shards_) {
    for (const OptimSpan& span : shard.spans) check_trainable(*span.parameter);
  }
  context.update_step([&](StepState& state) {
    const AutogradState& autograd = context.autograd();
    const bool is_new = state.step != static_cast<uint64_t>(step);
    if (is_new && !autograd.numbers_samples) state.sample = autograd.first_sample;
    state.step = static_cast<uint64_t>(step);
    host_values_.seed = state.seed;
  });
  stepped_ = false;
  host_values_.step = static_cast<uint64_t>(step);
  host_values_.lr = lr;
  updates_done_ = step;
  set_corrections(host_values_, step);
  // Writes prepared_ only if it changes, because a thread that steps shards may be reading it.
  if (Values& values = values_of(context); prepared_ != &values) prepared_ = &values;
  prepared_->clipped = {};
  upload(sizeof(StepState));
}

void Optimizer::set_updates(int64_t done) {
  check_prepared();
  updates_done_ = done;
  set_corrections(host_values_, done);
  upload(offsetof(StepState, loss_scale));
}

void Optimizer::take_clipped(const OptimShard& shard) {
  const Tensor& clipped = clipped_of(shard);
  if (prepared_->clipped.impl_ptr() == clipped.impl_ptr()) return;
  prepared_->clipped = clipped;
  const void* from = clipped.defined()
                         ? clipped.data()
                         : reinterpret_cast<const std::byte*>(&host_values_) + kResults;
  prepared_->context->copy(results_in(*prepared_->memory), from, sizeof(StepState) - kResults);
}

Exec Optimizer::exec(size_t shard) {
  Exec exec = shards_[shard].grad.exec();
  const Context& context = shards_[shard].grad.context();
  check_prepared();
  if (&context == prepared_->context) take_clipped(shards_[shard]);
  exec.step = &values_in(context);
  return exec;
}

std::shared_ptr<const Storage> Optimizer::hold_values() {
  check_prepared();
  for (const OptimShard& shard : shards_) {
    if (clipped_of(shard).impl_ptr() == clipped_of(shards_.front()).impl_ptr()) continue;
    throw ConfigError(
        cat("optimizer: ", shard.name, " and ", shards_.front().name,
            " were clipped separately; use one optimizer for each when stepping in host memory"));
  }
  if (!shards_.empty()) take_clipped(shards_.front());
  return prepared_->memory;
}

void Optimizer::step() {
  check_prepared();
  if (stepped_) {
    throw InternalError(cat("optimizer: a second step() after prepare() for step ", updates_done_,
                            ", so it would repeat that step's learning rate and bias corrections; "
                            "call prepare(context, step, lr) before each step()"));
  }
  complete_gradients(shards_);
  stepped_ = true;
  begin_step();
  for (size_t i = 0; i < shards_.size(); ++i) {
    if (shards_[i].changing != nullptr) shards_[i].changing();
    step_shard(i, shards_[i].compute);
    for (const OptimSpan& span : shards_[i].spans) span.parameter->value.bump_version();
    if (shards_[i].changed != nullptr) shards_[i].changed();
  }
}

void Optimizer::step_shard(size_t shard, const Tensor& compute) {
  update(shard, compute);
  if (averages_.empty()) return;
  kernels::weight_average(exec(shard), {.master = shards_[shard].master,
                                        .average = averages_[shard].value,
                                        .share = average_share_});
}

std::vector<Tensor> Optimizer::memory_of(size_t shard) const {
  std::vector<Tensor> memory = {shards_[shard].master};
  for (const std::vector<OptimState>* states : {&states_, &averages_}) {
    for (const OptimState& state : *states) {
      if (state.shard == shard) memory.push_back(state.value);
    }
  }
  return memory;
}

// ---- Weight averages ----

void Optimizer::keep_average(double decay) {
  if (!(decay >= 0 && decay < 1)) {
    throw ConfigError(cat("optimizer: the decay of the average is ", decay, ", expected [0, 1)"));
  }
  average_share_ = static_cast<float>(1 - decay);
  averages_.clear();
  for (size_t i = 0; i < shards_.size(); ++i) {
    const Tensor& master = shards_[i].master;
    check_dtype("optimizer", "a master that is averaged", master, DType::kF32);
    const Tensor average = empty(master.context(), master.shape(), DType::kF32,
                                 MemoryTag::kOptimizer, shards_[i].name);
    kernels::axpby(average.exec(), {.a = master, .y = average});
    averages_.push_back({.name = "ema", .value = average, .shard = i});
  }
}

void Optimizer::swap_average() {
  constexpr int64_t kPiece = int64_t{1} << 20;  // number of elements exchanged at a time
  for (size_t i = 0; i < averages_.size(); ++i) {
    if (shards_[i].changing != nullptr) shards_[i].changing();
    const Tensor& master = shards_[i].master;
    const Exec& exec = master.exec();
    const Tensor held = empty(master.context(), {std::min(kPiece, master.numel())}, DType::kF32,
                              MemoryTag::kOptimizer, "average");
    for (int64_t begin = 0; begin < master.numel(); begin += kPiece) {
      const int64_t count = std::min(kPiece, master.numel() - begin);
      const Tensor weights = vector_slice(master, begin, count);
      const Tensor average = vector_slice(averages_[i].value, begin, count);
      const Tensor between = vector_slice(held, 0, count);
      kernels::axpby(exec, {.a = weights, .y = between});
      kernels::axpby(exec, {.a = average, .y = weights});
      kernels::axpby(exec, {.a = between, .y = average});
    }
  }
}

// ---- States ----

Tensor Optimizer::add_state(OptimState state, int64_t count, DType dtype, double initial) {
  const OptimShard& shard = shards_[state.shard];
  state.value = empty(shard.grad.context(), {count}, dtype, MemoryTag::kOptimizer, shard.name);
  kernels::fill(state.value.exec(), {.y = state.value, .value = initial});
  states_.push_back(std::move(state));
  return states_.back().value;
}

void Optimizer::add_parts(const OptimState& state, std::vector<StatePart>& parts) const {
  const int64_t block = state.block;
  for (const OptimSpan& span : shards_[state.shard].spans) {
    // Range of the shard's elements that are both in the span and in the state.
    const int64_t begin = std::max(span.offset, state.first);
    const int64_t end =
        std::min(span.offset + span.count, state.first + state.value.numel() * block);
    const int64_t count = std::max(end - begin, int64_t{0});
    // Index in the parameter. It is a multiple of every block size, because spans begin at
    // multiples of the alignment of flat buffers.
    const int64_t first = count > 0 ? span.first + begin - span.offset : 0;
    const int64_t offset = count > 0 ? begin - state.first : 0;
    if (first % block != 0 || offset % block != 0) {
      throw InternalError(cat("optimizer: a part of ", span.parameter->full_name(),
                              " begins at element ", first, ", expected a multiple of ", block,
                              ", because ", block, " elements share one value of the state ",
                              state.name));
    }
    parts.push_back(
        {.name = cat(span.parameter->full_name(), "/", state.name),
         .parameter = span.parameter,
         .shape = state_shape(span.parameter->shape, block),
         .block = block,
         .first = first / block,
         .values = vector_slice(state.value, offset / block, (count + block - 1) / block),
         .replicas = state.replicas});
  }
}

std::vector<StatePart> Optimizer::own_state_parts() const {
  std::vector<StatePart> parts;
  for (const OptimState& state : states_) add_parts(state, parts);
  return parts;
}

std::vector<StatePart> Optimizer::state_parts() const {
  std::vector<StatePart> parts = own_state_parts();
  for (const OptimState& average : averages_) add_parts(average, parts);
  return parts;
}

namespace {

// Throws unless blocks of elements that share a state value lie within the rows of each
// tensor-parallel shard.
void check_blocks(const std::string& state, const Parameter& parameter, int64_t block) {
  const Sharding& sharding = parameter.sharding;
  const Shape& whole = parameter.whole;
  if (block == 1 || sharding.share != Share::kShard) return;
  const bool cuts_rows = sharding.dim == whole.ndim() - 1;
  const int64_t group = cuts_rows ? whole.at(-1) / sharding.groups : whole.at(-1);
  const int64_t row = cuts_rows ? group / sharding.ranks : group;
  if (row % block == 0) return;
  const int64_t blocks = group / block;
  const std::string fits =
      group % block != 0
          ? cat("a row length that is a multiple of ", block, ", or another optimizer")
      : blocks == 1
          ? std::string("one tensor rank, or another optimizer")
          : cat("a number of tensor ranks that divides ", blocks, ", or another optimizer");
  throw ConfigError(cat("optimizer: ", parameter.full_name(), whole, " is on ", sharding.ranks,
                        " tensor ranks with rows of ", row, " elements, and ", block,
                        " neighbours share a value of its state ", state, "; expected ", fits));
}

}  // namespace

ElementwiseOptimizer::ElementwiseOptimizer(std::vector<OptimShard> shards, float weight_decay,
                                           Runs runs)
    : Optimizer(std::move(shards)) {
  for (const OptimShard& shard : this->shards()) {
    runs_.push_back(runs_of(shard, weight_decay, runs));
  }
}

void ElementwiseOptimizer::update(size_t shard, const Tensor& compute) {
  for (const OptimRun& run : runs_[shard]) step_run(shard, run, part(compute, run));
}

void ElementwiseOptimizer::add_states(const std::string& name, DType dtype, int64_t block,
                                      double initial) {
  for (size_t i = 0; i < shards().size(); ++i) {
    for (const OptimSpan& span : shards()[i].spans) check_blocks(name, *span.parameter, block);
    const int64_t count = (shards()[i].grad.numel() + block - 1) / block;
    add_state({.name = name, .value = {}, .shard = i, .block = block}, count, dtype, initial);
  }
}

View ElementwiseOptimizer::part(const Tensor& vector, const OptimRun& run, int64_t block) {
  if (!vector.defined()) return {};
  if (run.offset % block != 0) {
    throw InternalError(cat("optimizer: an update begins at element ", run.offset,
                            " of its shard, expected a multiple of ", block, ", because ", block,
                            " elements share one value of the optimizer state"));
  }
  return vector_slice(vector, run.offset / block, (run.count + block - 1) / block).view();
}

}  // namespace shale::optim
