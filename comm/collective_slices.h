#pragma once

#include <string_view>

#include "shale/base/timeline.h"
#include "shale/comm/watch/recent_collectives.h"

namespace shale::comm {

// What has ended as a slice of the track "collectives: GROUP", or "link FROM -> TO": named after
// what was done, with the number of the call, the bytes and who asked. Its flow is that of the same
// collective, or message, on other ranks. `rank`: this one's, of the World. What a device ran is
// left to DeviceSlice.
void add_slice(Timeline& timeline, const RecentCollectives::Entry& entry, int rank);

// The same of what a stream of a device does, from when this is made until end(), by the device's
// clock. Costs two branches while nothing is recorded.
class DeviceSlice {
 public:
  // timeline: null if nobody listens.
  DeviceSlice(Timeline* timeline, void* stream)
      : timeline_(timeline != nullptr && timeline->is_recording() ? timeline : nullptr),
        stream_(stream),
        begin_(timeline_ != nullptr ? timeline_->mark(stream) : StreamMarks::kNone) {}
  // bytes: of its larger buffer. first_rank: of the group, in the World, as `rank`.
  void end(std::string_view group, const Fingerprint& call, int64_t bytes, int first_rank,
           int rank);

 private:
  Timeline* timeline_;
  void* stream_;
  size_t begin_;
};

}  // namespace shale::comm
