#include "shale/bench/support/owner_step.h"

#include <utility>

#include "shale/base/error.h"
#include "shale/runtime/autograd/tape.h"

namespace shale::bench {
namespace {

constexpr int kOwner = 0;

View flat(const HostTensor& field, int64_t elements) {
  return make_view(const_cast<std::byte*>(field.bytes.data()), field.dtype, {elements});
}

}  // namespace

Batch without_rows(const Batch& whole) {
  Batch names = whole;
  for (HostTensor& field : names.fields) field.bytes.clear();
  return names;
}

OwnerStep::OwnerStep(Module& model, const std::vector<Module*>& units, Context& context,
                     comm::ProcessGroup& group, comm::ProcessGroup& alone, uint64_t seed,
                     const models::MakeOptimizer& make)
    : model_(model),
      context_(context),
      group_(group),
      parallel_(model, units, context, alone, {.seed = seed}) {
  std::vector<OptimShard> shards = parallel_.shards();
  // Only the owner updates parameters. The optimizer of another rank has no states and only clears
  // gradients.
  optimizer_ = group.rank() == kOwner ? make(std::move(shards))
                                      : std::make_unique<optim::Sgd>(
                                            std::move(shards), optim::SgdOptions{.momentum = 0});
}

Batch OwnerStep::scatter(const Batch& whole) {
  const int64_t ranks = group_.size(), rows = whole.count / ranks;
  if (whole.count % ranks != 0) {
    throw InternalError(cat("owner: ", whole.count, " rows, expected a multiple of ", ranks));
  }
  Batch mine{.first_position = whole.first_position + group_.rank() * rows, .count = rows};
  for (const HostTensor& field : whole.fields) {
    const bool owns = group_.rank() == kOwner;
    Shape shape = field.shape;
    shape[0] = rows;
    const int64_t share = shape.numel();
    HostTensor& to = mine.set(field.name, field.dtype, shape);
    std::vector<int64_t> given(static_cast<size_t>(ranks), owns ? share : 0);
    std::vector<int64_t> taken(static_cast<size_t>(ranks), 0);
    taken[kOwner] = share;
    group_.host()
        .all_to_all_v(flat(field, owns ? share * ranks : 0), given, flat(to, share), taken,
                      {.tag = "rows"})
        .wait();
    bytes_.down += static_cast<double>(to.bytes.size());
  }
  return mine;
}

void OwnerStep::give_parameters() {
  for (const OptimShard& shard : parallel_.shards()) {
    group_.broadcast(shard.master, kOwner, {.tag = "parameters", .stream = context_.exec().stream})
        .wait();
    bytes_.down += static_cast<double>(shard.master.bytes());
  }
  for (const Buffer* buffer : model_.buffers()) {
    group_.broadcast(buffer->value, kOwner, {.tag = "buffers", .stream = context_.exec().stream})
        .wait();
    bytes_.down += static_cast<double>(buffer->value.bytes());
  }
  if (group_.rank() != kOwner) parallel_.masters_changed();
}

void OwnerStep::take_gradients() {
  for (const OptimShard& shard : parallel_.shards()) {
    group_.reduce_sum(shard.grad, kOwner, {.tag = "gradients", .stream = context_.exec().stream})
        .wait();
    bytes_.up += static_cast<double>(shard.grad.bytes());
  }
}

float OwnerStep::run(const Batch& whole, int64_t step, float lr, double weight,
                     const models::MicroBatches::Loss& loss) {
  bytes_ = {};
  const Batch mine = scatter(whole);
  give_parameters();
  context_.update_step(
      [&](StepState& state) { state.grad_scale = static_cast<float>(1 / weight); });
  optimizer_->prepare(context_, step, lr);
  parallel_.begin_backward(/*last=*/true);
  const Tensor sum = loss(DeviceBatch(context_, mine));
  backward(sum);
  parallel_.finish_gradients();
  take_gradients();
  if (group_.rank() == kOwner) optimizer_->step();
  optimizer_->zero_grad();
  return to_host<float>(sum).front();
}

}  // namespace shale::bench
