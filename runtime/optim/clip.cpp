#include "shale/runtime/optim/clip.h"

#include <algorithm>
#include <cstddef>

#include "shale/kernels/fixed_sum.h"
#include "shale/kernels/reduce.h"
#include "shale/runtime/optim/outliers.h"
#include "shale/runtime/tensor/context.h"

namespace shale::optim {

namespace {

// Adds the squares of a shard's gradient. A parameter that several tensor-parallel ranks hold
// counts on one of them.
void add_squares(const OptimShard& shard, const Exec& exec, kernels::FixedSum* sum) {
  if (!shard.counts) return;
  const bool counts = std::all_of(shard.spans.begin(), shard.spans.end(), [](const auto& span) {
    return span.parameter->sharding.counts();
  });
  if (shard.is_whole() && counts) return kernels::sum_squares(exec, {.x = shard.grad, .sum = sum});
  for (const OptimSpan& span : shard.spans) {
    if (span.count == 0 || !span.parameter->sharding.counts()) continue;
    kernels::sum_squares(exec,
                         {.x = vector_slice(shard.grad, span.offset, span.count), .sum = sum});
  }
}

// Stores the results in the state of the gradients for which they were computed.
void keep_results(Context& context, const std::vector<OptimShard>& shards) {
  constexpr size_t kBegin = offsetof(StepState, grad_norm);
  constexpr int64_t kBytes = sizeof(StepState) - kBegin;
  const Tensor found = empty(context, {kBytes}, DType::kU8, MemoryTag::kData, "clip factor");
  context.copy(found.data(), reinterpret_cast<const std::byte*>(context.exec().step) + kBegin,
               kBytes);
  for (const OptimShard& shard : shards) {
    ShardGradient& gradient = *shard.gradient;
    if (shard.is_whole()) {
      gradient.clipped = found;
      gradient.clipped_apart.clear();
      continue;
    }
    for (const OptimSpan& span : shard.spans) gradient.clipped_apart[span.parameter] = found;
  }
}

}  // namespace

void clip_grad_norm(Context& context, const std::vector<OptimShard>& shards, float max_norm,
                    OutlierSkip* outliers, const ClipRanks& ranks) {
  const ShardPeers* peers = peers_of("clip_grad_norm", shards);
  complete_gradients(shards);
  constexpr int64_t kBytes = sizeof(kernels::FixedSum);
  const Tensor sum = empty(context, {kBytes}, DType::kU8);
  // sum of squares of gradients in host memory; the sum on the device starts with it
  kernels::FixedSum on_host;
  for (const OptimShard& shard : shards) {
    if (&shard.grad.context() == &context) continue;
    add_squares(shard, shard.grad.exec(), &on_host);
  }
  context.copy(sum.data(), &on_host, kBytes);
  for (const OptimShard& shard : shards) {
    if (&shard.grad.context() != &context) continue;
    add_squares(shard, context.exec(), static_cast<kernels::FixedSum*>(sum.data()));
  }
  const Tensor parts = ranks.gather != nullptr ? ranks.gather(sum)
                       : peers != nullptr      ? peers->gather(sum)
                                               : sum;
  kernels::clip_factor(context.exec(), {.sum = static_cast<kernels::FixedSum*>(parts.data()),
                                        .parts = parts.numel() / kBytes,
                                        .max_norm = max_norm,
                                        .factor = static_cast<float>(ranks.copies)});
  if (ranks.agree != nullptr) {
    void* const flag = &context.exec().step->non_finite;
    ranks.agree(make_view(flag, DType::kI32, {1}));
  }
  if (outliers != nullptr) outliers->check();
  keep_results(context, shards);
}

std::string first_non_finite(const std::vector<OptimShard>& shards) {
  for (const OptimShard& shard : shards) {
    for (const OptimSpan& span : shard.spans) {
      if (span.count == 0) continue;
      Context& place = shard.grad.context();
      const Tensor memory = zeros(place, {int64_t{sizeof(kernels::FixedSum)}}, DType::kU8);
      kernels::sum_squares(place.exec(), {.x = vector_slice(shard.grad, span.offset, span.count),
                                          .sum = static_cast<kernels::FixedSum*>(memory.data())});
      kernels::FixedSum sum;
      place.copy(&sum, memory.data(), sizeof(sum));
      place.synchronize();
      if (sum.bad != 0) return span.parameter->full_name();
    }
  }
  return {};
}

}  // namespace shale::optim
