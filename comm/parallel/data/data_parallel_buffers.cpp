#include "shale/comm/parallel/data/data_parallel.h"
#include "shale/runtime/ops/elementwise.h"

namespace shale::comm {

// What has memory is another unit's, or its module's own.
void DataParallel::bind_buffers(const Module& module) {
  for (Buffer* buffer : module.buffers()) {
    if (!buffer->needs_memory()) continue;
    buffer->bind(shared_.context);
    buffers_.push_back(buffer);
  }
}

void DataParallel::average_buffers() {
  std::vector<ProcessGroup*> groups = {shared_.groups.shard};
  if (shared_.groups.replicate != nullptr) groups.push_back(shared_.groups.replicate);
  for (Buffer* buffer : buffers_) {
    if (buffer->ranks != BufferRanks::kMean) continue;
    int ranks = 1;
    for (ProcessGroup* group : groups) {
      ranks *= group->size();
      if (group->size() == 1) continue;
      shared_.wait(group->all_reduce_sum(
          buffer->value, {.tag = "buffers", .stream = shared_.context.exec().stream}));
    }
    if (ranks > 1) scale_(buffer->value, 1 / static_cast<float>(ranks));
  }
}

}  // namespace shale::comm
