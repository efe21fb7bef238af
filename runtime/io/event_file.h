#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace shale {

// TensorBoard event files. A file is a sequence of records in TFRecord format: a length and bytes,
// each with a masked CRC-32C. Each record is an Event protocol buffer.

// Encodes an event as a record.
std::string event_record(std::string_view event);

struct EventRecords {
  std::vector<std::string_view> events;  // bytes of each event, in order
  // Size of the file up to the end of its last valid record. A killed process or a machine failure
  // may leave incomplete data after it.
  size_t sound_bytes = 0;
};

// Returns the records of a file, up to the first record that is truncated or has a wrong checksum.
// The file's bytes must outlive the result.
EventRecords read_event_records(std::string_view file);

// Returns the step of an Event; 0 if it has none. Throws DataError, which begins with `source`, if
// the bytes are not a valid protocol buffer.
int64_t step_of_event(std::string_view event, const std::string& source);

// Removes events after `last_step` from all event files of a folder, so that a resumed run logs
// each step once. Also removes any data after the last valid record of a file. Other bytes are
// unchanged. A changed file is replaced atomically and is on the disk when this returns. Returns
// the number of removed events; 0 if the folder does not exist. Throws DiskError; DataError for an
// event that is not a valid protocol buffer.
int64_t drop_events_after(const std::string& folder, int64_t last_step);

// Returns true if TensorBoard treats a file of this name as an event file.
bool is_event_file_name(std::string_view name);

}  // namespace shale
