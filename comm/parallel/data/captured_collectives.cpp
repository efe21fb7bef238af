#include "shale/comm/parallel/data/captured_collectives.h"

namespace shale::comm {

CapturedCollectives::CapturedCollectives(const ShardGroups& groups) {
  std::vector<ProcessGroup*> all = groups.layers;
  all.insert(all.end(), {groups.shard, groups.replicate, groups.reshard, groups.tensor});
  for (ProcessGroup* group : all) {
    if (group != nullptr) calls_.emplace_back(group, group->take_captured());
  }
}

void CapturedCollectives::replayed(void* stream) const {
  for (const auto& [group, calls] : calls_) group->replayed(calls, stream);
}

}  // namespace shale::comm
