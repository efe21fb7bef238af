#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace shale {

// The files that TensorBoard reads: records, each a length and bytes, both with a masked CRC-32C
// (the format of TFRecord), of which each is a protocol buffer, an Event.

// The record of these bytes.
std::string event_record(std::string_view event);

struct EventRecords {
  std::vector<std::string_view> events;  // the bytes of each record, in order
  // Of the file, up to the end of its last sound record. What follows is what a killed process or
  // a stopped machine leaves.
  size_t sound_bytes = 0;
};

// The records of a file's bytes, which must outlive them, up to the first that is cut off or whose
// checksum is wrong.
EventRecords read_event_records(std::string_view file);

// The step of an Event, 0 where it has none. Throws DataError, starting with `source`, if the bytes
// are no protocol buffer.
int64_t step_of_event(std::string_view event, const std::string& source);

// Drops the events behind `last_step` from all event files of a folder, and what is behind their
// last sound record, so that a run that goes on there has each step once. What stays, stays byte
// for byte. A file that changes is replaced as a whole and on the disk when this returns. Returns
// how many events were dropped; a folder that does not exist has none. Throws DiskError; DataError
// for an event that is no protocol buffer.
int64_t drop_events_after(const std::string& folder, int64_t last_step);

// Whether TensorBoard takes a file of this name for one of events.
bool is_event_file_name(std::string_view name);

}  // namespace shale
