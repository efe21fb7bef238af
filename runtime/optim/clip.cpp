#include "shale/runtime/optim/clip.h"

#include "shale/kernels/fixed_sum.h"
#include "shale/kernels/reduce.h"

namespace shale::optim {

void clip_grad_norm(Context& context, const std::vector<OptimShard>& shards, float max_norm,
                    const GatherSums& gather) {
  complete_gradients(shards);
  constexpr int64_t kBytes = sizeof(kernels::FixedSum);
  const Tensor sum = empty(context, {kBytes}, DType::kU8);
  kernels::FixedSum on_host;  // of gradients that are not on the device
  for (const OptimShard& shard : shards) {
    if (&shard.grad.context() == &context) continue;
    kernels::sum_squares(shard.grad.exec(), {.x = shard.grad, .sum = &on_host});
  }
  context.copy(sum.data(), &on_host, kBytes);
  for (const OptimShard& shard : shards) {
    if (&shard.grad.context() != &context) continue;
    kernels::sum_squares(context.exec(),
                         {.x = shard.grad, .sum = static_cast<kernels::FixedSum*>(sum.data())});
  }
  const Tensor parts = gather != nullptr ? gather(sum) : sum;
  kernels::clip_factor(context.exec(), {.sum = static_cast<kernels::FixedSum*>(parts.data()),
                                        .parts = parts.numel() / kBytes,
                                        .max_norm = max_norm});
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
