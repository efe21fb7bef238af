#include "shale/models/training/pipeline_step.h"

#include <utility>

namespace shale::models {

PipelineStep::PipelineStep(Context& context, StepPipeline model, comm::DataParallel& parallel,
                           DType compute, StepObserver* observer)
    : context_(context),
      model_(std::move(model)),
      parallel_(parallel),
      observer_(observer),
      pipeline_(context, *model_.group, model_.plan,
                {.boundary = model_.boundary,
                 .dtype = compute,
                 .slots = model_.slots,
                 .hosted = parallel.hosted_ranks()}),
      uploads_(context) {}

std::vector<Tensor> PipelineStep::run(const StepInput& input, std::function<void()> before) {
  input_ = &input;
  before_ = std::move(before);
  micro_batches_.clear();
  step_ = input.step + 1;
  rounds_ = 0;
  std::vector<Tensor> losses = pipeline_.run(step_, *this);
  input_ = nullptr;
  if (losses.empty()) {
    const Tensor none = zeros(context_, {}, DType::kF32, MemoryTag::kData);
    losses.assign(static_cast<size_t>(model_.plan.schedule.micros), none);
  }
  return losses;
}

Tensor PipelineStep::loss(const DeviceBatch& batch) {
  evaluated_ = &batch;
  const Tensor sum = pipeline_.forward(step_, rounds_++, *this);
  evaluated_ = nullptr;
  return sum;
}

// Returns a micro-batch. Uploads it at its first call; micro-batches have their first calls in
// order.
const DeviceBatch& PipelineStep::batch_of(int micro) {
  if (input_ == nullptr) return *evaluated_;
  const auto [found, is_new] = micro_batches_.try_emplace(micro);
  MicroBatch& now = found->second;
  if (is_new) {
    const Batch& batch = input_->next_batch();
    now.batch.upload(context_, batch, DeviceBatch::Memory::kFresh, &uploads_);
    now.first_sample = static_cast<uint64_t>(batch.first_position - input_->first_position);
  }
  // These values are for forward. Backward does not read them, because ops save what their backward
  // needs.
  context_.update_step([&](StepState& state) {
    state.grad_scale = 1 / static_cast<float>(input_->weight);
    state.sample = now.first_sample;
  });
  return now.batch;
}

Tensor PipelineStep::forward(const comm::PieceRange& pieces, int micro, const Tensor& x) {
  return model_.run(pieces, x, batch_of(micro));
}

void PipelineStep::before_backward(int chunk, bool last) {
  parallel_.begin_backward(last, chunk);
}

void PipelineStep::begins(const comm::Action& action) {
  if (input_ == nullptr) return;
  const bool forward = action.kind == comm::ActionKind::kForward;
  if (!forward && before_ != nullptr) std::exchange(before_, nullptr)();
  if (observer_ == nullptr) return;
  observer_->acts(action);
  observer_->begins(forward ? StepPhase::kForward : StepPhase::kBackward);
}

void PipelineStep::ends(const comm::Action& action) {
  if (input_ == nullptr) return;
  const bool forward = action.kind == comm::ActionKind::kForward;
  const int last = model_.plan.placement().chunks - 1;
  if (forward && action.chunk == last) micro_batches_.erase(action.micro);
  if (observer_ == nullptr) return;
  observer_->ends(forward ? StepPhase::kForward : StepPhase::kBackward);
}

}  // namespace shale::models
