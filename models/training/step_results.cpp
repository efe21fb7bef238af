#include "shale/models/training/step_results.h"

#include "shale/base/error.h"

namespace shale::models {

StepResults::StepResults(Context& context, int64_t max_micro_batches, int64_t tally_size)
    : context_(context),
      max_micro_batches_(max_micro_batches),
      tally_size_(tally_size),
      bytes_(sizeof(StepState) + static_cast<size_t>(max_micro_batches) * sizeof(float) +
             static_cast<size_t>(tally_size) * sizeof(int32_t)),
      state_(static_cast<StepState*>(context.backend().host_memory().allocate(bytes_))),
      losses_(reinterpret_cast<float*>(state_ + 1)),
      tally_(reinterpret_cast<int32_t*>(losses_ + max_micro_batches)) {}

StepResults::~StepResults() {
  drop_event();
  context_.backend().host_memory().free(state_, bytes_);
}

void StepResults::drop_event() {
  if (queued_) context_.backend().destroy_event(event_);
  queued_ = false;
}

void StepResults::queue(const std::vector<Tensor>& losses, const Tensor& tally) {
  micro_batches_ = static_cast<int64_t>(losses.size());
  if (micro_batches_ > max_micro_batches_) {
    throw InternalError(
        cat("step_results: ", micro_batches_, " losses, expected at most ", max_micro_batches_));
  }
  drop_event();
  for (size_t i = 0; i < losses.size(); ++i) {
    context_.copy(losses_ + i, losses[i].data(), sizeof(float));
  }
  if (tally.defined()) context_.copy(tally_, tally.data(), tally.bytes());
  context_.copy(state_, context_.exec().step, sizeof(StepState));
  event_ = context_.backend().record_event(context_.exec().stream);
  queued_ = true;
}

void StepResults::wait() {
  if (!queued_) throw InternalError("step_results: nothing is queued; call queue() first");
  context_.backend().synchronize_event(event_);
  drop_event();
}

std::vector<double> StepResults::losses() const {
  return {losses_, losses_ + micro_batches_};
}

}  // namespace shale::models
