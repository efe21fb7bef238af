#include "shale/models/training/micro_batches.h"

#include <optional>
#include <utility>

#include "shale/base/error.h"
#include "shale/comm/parallel/hosted_ranks.h"
#include "shale/runtime/autograd/saved_tensor.h"
#include "shale/runtime/autograd/tape.h"

namespace shale::models {

MicroBatches::MicroBatches(Context& context, Loss loss, comm::DataParallel& parallel,
                           offload::ActivationOffload* activations, bool graphs)
    : context_(context),
      loss_of_(std::move(loss)),
      parallel_(parallel),
      activations_(activations),
      memory_(graphs ? std::make_unique<GraphMemory>(context) : nullptr),
      uploads_(context) {}

MicroBatches::~MicroBatches() = default;

void MicroBatches::queue_forward() {
  std::optional<SavedTensorHooksScope> scope;
  if (activations_ != nullptr) scope.emplace(context_, activations_->hooks());
  const comm::HostedRanks* const hosted = parallel_.hosted_ranks();
  losses_.resize(hosted != nullptr ? static_cast<size_t>(hosted->count()) : 1);
  parallel_.run([&](int rank) { losses_[static_cast<size_t>(rank)] = loss_of_(batch_); });
}

void MicroBatches::queue_backward() {
  parallel_.begin_backward(place_.last);
  parallel_.run([&](int rank) {
    Tensor& loss = losses_[static_cast<size_t>(rank)];
    shale::backward(loss);
    loss = loss.detach();
  });
}

Tensor MicroBatches::take_loss() {
  return std::exchange(losses_, {}).front();
}

void MicroBatches::forward(const Batch& batch, Place place) {
  place_ = place;
  using enum DeviceBatch::Memory;
  batch_.upload(context_, batch, memory_ == nullptr ? kFresh : kSame, &uploads_);
  if (memory_ == nullptr) return queue_forward();
  parallel_.finish_gathers();
  if (warm_) return graph_forward();
  const GraphMemory::Scope scope(*memory_);
  queue_forward();
}

Tensor MicroBatches::backward() {
  if (memory_ != nullptr && warm_) return graph_backward();
  std::optional<GraphMemory::Scope> scope;
  if (memory_ != nullptr) scope.emplace(*memory_);
  queue_backward();
  return take_loss();
}

void MicroBatches::capture(Pass& pass, void (MicroBatches::*queue)()) {
  pass.graph = std::make_unique<Graph>(*memory_, [this, queue] { (this->*queue)(); });
  pass.collectives = comm::CapturedCollectives(parallel_.shared().groups);
}

void MicroBatches::replay(const Pass& pass) {
  pass.graph->replay();
  pass.collectives.replayed(context_.exec().stream);
}

void MicroBatches::graph_forward() {
  Captured& graphs = captured();
  if (graphs.forward.graph == nullptr) capture(graphs.forward, &MicroBatches::queue_forward);
  replay(graphs.forward);
}

Tensor MicroBatches::graph_backward() {
  Captured& graphs = captured();
  if (graphs.backward.graph == nullptr) {
    graphs.flags_before = parallel_.gradient_flags();
    capture(graphs.backward, &MicroBatches::queue_backward);
    graphs.flags_after = parallel_.gradient_flags();
    graphs.loss = take_loss();
  } else if (parallel_.gradient_flags() != graphs.flags_before) {
    throw InternalError(
        "micro-batch: the gradients that exist differ from those when its graph was captured; "
        "expected the same gradients at this position of every step");
  }
  replay(graphs.backward);
  parallel_.set_gradient_flags(graphs.flags_after);
  // Copies the loss, because the next replay overwrites the graph's tensor.
  Tensor loss = empty(context_, graphs.loss.shape(), graphs.loss.dtype(), MemoryTag::kData);
  context_.copy(loss.data(), graphs.loss.data(), loss.bytes());
  return loss;
}

}  // namespace shale::models
