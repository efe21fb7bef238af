#include "shale/comm/groups/group_self.h"

#include <cstring>

#include "shale/comm/watch/group_progress_internal.h"

namespace shale::comm {

void SelfGroup::execute(const CollectiveCall& call, bool) {
  if (call.out.data != call.in.data && call.out.bytes() > 0) {
    std::memmove(call.out.data, call.in.data, static_cast<size_t>(call.out.bytes()));
  }
}

Work SelfGroup::submit(const CollectiveCall& call, bool) {
  execute(call, /*blocking=*/true);
  return Work();
}

std::unique_ptr<GroupProgress> SelfGroup::make_progress() {
  return nullptr;
}

std::unique_ptr<HostGroup> SelfGroup::split_host(int, int, const GroupOptions& options) {
  return std::make_unique<SelfGroup>(context_, options);
}

}  // namespace shale::comm
