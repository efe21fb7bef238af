#include "shale/comm/checkpoint/replica_states.h"

#include <algorithm>

#include "shale/base/log.h"
#include "shale/kernels/elementwise.h"

namespace shale::comm {

StatePart stacked(StatePart part, int replica, int replicas) {
  if (part.box.begin.empty()) part.box = whole_box({part.shape.begin(), part.shape.end()});
  part.box.begin.insert(part.box.begin.begin(), replica);
  part.box.size.insert(part.box.size.begin(), 1);
  std::vector<int64_t> shape = {replicas};
  shape.insert(shape.end(), part.shape.begin(), part.shape.end());
  part.shape = Shape(shape);
  return part;
}

int64_t stored_replicas(const CheckpointTensor& stored, const StatePart& part) {
  const bool matches = part.replicas == OverReplicas::kEach && !stored.shape.empty() &&
                       stored.dtype == part.values.dtype() &&
                       std::equal(stored.shape.begin() + 1, stored.shape.end(),
                                  part.shape.begin() + 1, part.shape.end());
  return matches ? stored.shape.front() : 0;
}

void read_mean(const std::vector<StatePart>& parts, int64_t stored,
               const std::function<void(const std::vector<StatePart>&)>& read) {
  if (parts.empty()) return;
  log_info("checkpoint: averaging the states of ", stored, " replicas for the ",
           parts.front().shape[0], " replicas of this run");
  for (const StatePart& part : parts) {
    const Tensor& mean = part.values;
    if (mean.numel() == 0) continue;
    kernels::fill(mean.exec(), {.y = mean, .value = 0});
    StatePart of_one = part;
    of_one.values = empty(mean.context(), {mean.numel()}, mean.dtype(), MemoryTag::kWorkspace);
    std::vector<int64_t> shape(part.shape.begin(), part.shape.end());
    shape.front() = stored;
    of_one.shape = Shape(shape);
    for (of_one.box.begin.front() = 0; of_one.box.begin.front() < stored;
         ++of_one.box.begin.front()) {
      read({of_one});
      kernels::axpby(
          mean.exec(),
          {.a = mean, .b = of_one.values, .y = mean, .beta = 1 / static_cast<float>(stored)});
    }
  }
}

}  // namespace shale::comm
