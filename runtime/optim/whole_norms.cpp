#include "shale/runtime/optim/whole_norms.h"

#include <cstddef>
#include <vector>

#include "shale/kernels/elementwise.h"
#include "shale/kernels/fixed_sum.h"
#include "shale/kernels/reduce.h"
#include "shale/runtime/tensor/context.h"

namespace shale::optim {
namespace {

constexpr int64_t kSumBytes = sizeof(kernels::FixedSum);
constexpr int64_t kSumWords = kSumBytes / int64_t{sizeof(int64_t)};
constexpr int64_t kStateFloats = sizeof(StepState) / sizeof(float);
static_assert(sizeof(StepState) % sizeof(float) == 0);

}  // namespace

WholeNorms::WholeNorms(Context& context, const ShardPeers* peers, int64_t count)
    : peers_(peers),
      count_(count),
      sums_(empty(context, {count * kSumBytes}, DType::kU8, MemoryTag::kOptimizer, "norms")),
      states_(empty(context, {count * kStateFloats}, DType::kF32, MemoryTag::kOptimizer, "norms")) {
  const std::vector<StepState> initial(static_cast<size_t>(count));
  context.copy(states_.data(), initial.data(), states_.bytes());
}

void WholeNorms::forget(const Exec& exec) {
  kernels::fill(exec, {.y = sums_, .value = 0});
}

void WholeNorms::add(const Exec& exec, int64_t index, const View& part) {
  auto* const sums = static_cast<kernels::FixedSum*>(sums_.data());
  kernels::sum_squares(exec, {.x = part, .sum = sums + index});
}

void WholeNorms::join(const Exec& exec) {
  // Gathers the sums of all ranks, and sorts them so that the sums of one vector are next to each
  // other.
  Tensor sums = sums_;
  const int64_t ranks = peers_ != nullptr ? peers_->size : 1;
  if (ranks > 1) {
    const Tensor by_rank = peers_->gather(sums_);
    sums =
        empty(sums_.context(), {ranks * sums_.numel()}, DType::kU8, MemoryTag::kOptimizer, "norms");
    View from = make_view(by_rank.data(), DType::kI64, {count_, ranks, kSumWords});
    from.strides = {kSumWords, count_ * kSumWords, 1};
    kernels::copy(exec, {.x = from, .y = make_view(sums.data(), DType::kI64, from.shape)});
  }
  auto* const states = static_cast<StepState*>(states_.data());
  for (int64_t i = 0; i < count_; ++i) {
    Exec own = exec;
    own.step = states + i;
    kernels::clip_factor(
        own, {.sum = static_cast<kernels::FixedSum*>(sums.data()) + i * ranks, .parts = ranks});
  }
}

View WholeNorms::norms(int64_t first, int64_t count) const {
  constexpr int64_t kNorm = offsetof(StepState, grad_norm) / sizeof(float);
  return states_.alias({count}, {kStateFloats}, first * kStateFloats + kNorm).view();
}

}  // namespace shale::optim
