#pragma once

#include <cstdint>

namespace shale::models {

// JSON key of a slice's flow among its arguments. trace_read.cpp reads the flow from it.
inline constexpr const char* kFlowKey = "flow";

// Field numbers of perfetto/trace/trace_packet.proto, track_event/track_event.proto,
// track_event/track_descriptor.proto and interned_data/interned_data.proto, and enum values.
namespace perfetto {
inline constexpr uint32_t kPacket = 1;  // field of Trace
// Fields of TracePacket.
inline constexpr uint32_t kTime = 8, kSequence = 10, kEvent = 11, kInterned = 12, kFlags = 13,
                          kDescriptor = 60;
inline constexpr int64_t kStateCleared = 1, kNeedsState = 2;  // values of kFlags
// Fields of TrackDescriptor, of its ProcessDescriptor, and of its CounterDescriptor.
inline constexpr uint32_t kUuid = 1, kTrackName = 2, kProcess = 3, kParent = 5, kCounter = 8;
inline constexpr uint32_t kPid = 1, kProcessName = 6;
inline constexpr uint32_t kUnit = 3;
inline constexpr int64_t kBytes = 3;  // value of kUnit
// Fields of TrackEvent.
inline constexpr uint32_t kAnnotation = 4, kType = 9, kNameId = 10, kTrack = 11, kValue = 44,
                          kFlow = 47;
inline constexpr int64_t kBegin = 1, kEnd = 2, kCount = 4;  // values of kType
// Fields of DebugAnnotation.
inline constexpr uint32_t kInteger = 4, kString = 6, kKey = 10;
// Fields of InternedData, and of its EventName entries.
inline constexpr uint32_t kEventNames = 2;
inline constexpr uint32_t kId = 1, kName = 2;
}  // namespace perfetto

}  // namespace shale::models
