#pragma once

#include "shale/base/timeline.h"
#include "shale/comm/watch/recent_collectives.h"

namespace shale::comm {

// What has ended as a slice of the track "collectives: GROUP", or "link FROM -> TO": named after
// what was done, with the number of the call, the bytes and who asked. Its flow is that of the same
// collective, or message, on other ranks. `rank`: this one's, of the World.
void add_slice(Timeline& timeline, const RecentCollectives::Entry& entry, int rank);

}  // namespace shale::comm
