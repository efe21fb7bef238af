#include "runtime/optim/clip.h"

#include "kernels/elementwise.h"
#include "kernels/reduce.h"

namespace shale::optim {

void clip_grad_norm(Context& context, const std::vector<OptimShard>& shards, float max_norm,
                    const CombineSums& combine) {
  complete_gradients(shards);
  const Tensor memory = zeros(context, {int64_t{sizeof(kernels::FixedSum)}}, DType::kU8);
  auto* total = static_cast<kernels::FixedSum*>(memory.data());
  for (const OptimShard& shard : shards) {
    kernels::sum_squares(context.exec(), {.x = shard.grad, .sum = total});
  }
  if (combine != nullptr) combine(total);
  kernels::clip_factor(context.exec(), {.sum = total, .max_norm = max_norm});
}

std::string first_non_finite(Context& context, const std::vector<OptimShard>& shards) {
  for (const OptimShard& shard : shards) {
    for (const OptimSpan& span : shard.spans) {
      const Tensor memory = zeros(context, {int64_t{sizeof(kernels::FixedSum)}}, DType::kU8);
      kernels::sum_squares(context.exec(), {.x = vector_slice(shard.grad, span.offset, span.count),
                                            .sum = static_cast<kernels::FixedSum*>(memory.data())});
      kernels::FixedSum sum;
      context.copy(&sum, memory.data(), sizeof(sum));
      context.synchronize();
      if (sum.bad != 0) return span.parameter->full_name();
    }
  }
  return {};
}

}  // namespace shale::optim
