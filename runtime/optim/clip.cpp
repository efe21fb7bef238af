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

}  // namespace shale::optim
