#pragma once

#include <string_view>

#include "shale/base/timeline.h"
#include "shale/comm/watch/recent_collectives.h"

namespace shale::comm {

// Adds a finished call as a slice to the track "collectives: GROUP" or "link FROM -> TO" of the
// timeline. The slice is named after the operation and has the call's number, bytes and tag. A flow
// connects it with the same collective, or message, on other ranks. `rank`: this rank in the World.
// Ignores calls that ran on a device, because DeviceSlice adds them.
void add_slice(Timeline& timeline, const RecentCollectives::Entry& entry, int rank);

// Adds a call on a device stream as a slice to a timeline, by the device's clock. The slice begins
// with the constructor and ends with end(). Costs two branches while nothing is recorded.
class DeviceSlice {
 public:
  // timeline: null if nothing records.
  DeviceSlice(Timeline* timeline, void* stream)
      : timeline_(timeline != nullptr && timeline->is_recording() ? timeline : nullptr),
        stream_(stream),
        begin_(timeline_ != nullptr ? timeline_->mark(stream) : StreamMarks::kNone) {}
  // bytes: size of the larger buffer. rank, first_rank: World ranks of this rank and of the group's
  // first.
  void end(std::string_view group, const Fingerprint& call, int64_t bytes, int first_rank,
           int rank);

 private:
  Timeline* timeline_;
  void* stream_;
  size_t begin_;
};

}  // namespace shale::comm
