#include "shale/runtime/io/event_file.h"

#include <bit>
#include <cstddef>
#include <filesystem>
#include <span>

#include "shale/base/error.h"
#include "shale/base/protobuf.h"
#include "shale/runtime/io/atomic_file.h"
#include "shale/runtime/io/crc32c.h"
#include "shale/runtime/io/mapped_file.h"

namespace shale {
namespace {

constexpr size_t kHead = 12;  // bytes before an event: its length, and the checksum of the length
constexpr size_t kTail = 4;   // bytes after an event: its checksum

// Returns a CRC-32C masked as in TFRecord. A plain checksum over data that contains plain checksums
// would detect fewer errors.
uint32_t masked_crc32c(std::string_view bytes) {
  return std::rotr(crc32c(std::as_bytes(std::span(bytes))), 15) + 0xa282ead8u;
}

template <typename Int>
void append(std::string& text, Int value) {
  for (size_t i = 0; i < sizeof(value); ++i) text += static_cast<char>(value >> (8 * i));
}

template <typename Int>
Int read(std::string_view bytes) {
  Int value = 0;
  for (size_t i = 0; i < sizeof(value); ++i) {
    value |= Int{static_cast<unsigned char>(bytes[i])} << (8 * i);
  }
  return value;
}

}  // namespace

std::string event_record(std::string_view event) {
  std::string record;
  record.reserve(kHead + event.size() + kTail);
  append(record, uint64_t{event.size()});
  append(record, masked_crc32c(record));
  record += event;
  append(record, masked_crc32c(event));
  return record;
}

EventRecords read_event_records(std::string_view file) {
  EventRecords records;
  while (file.size() >= kHead + kTail) {
    const auto bytes = read<uint64_t>(file);
    if (read<uint32_t>(file.substr(8)) != masked_crc32c(file.substr(0, 8))) break;
    if (bytes > file.size() - kHead - kTail) break;
    const std::string_view event = file.substr(kHead, bytes);
    if (read<uint32_t>(file.substr(kHead + bytes)) != masked_crc32c(event)) break;
    records.events.push_back(event);
    records.sound_bytes += kHead + bytes + kTail;
    file.remove_prefix(kHead + bytes + kTail);
  }
  return records;
}

int64_t step_of_event(std::string_view event, const std::string& source) {
  constexpr uint32_t kStep = 2;
  ProtoReader reader(event, source);
  int64_t step = 0;
  while (const auto field = reader.next()) {
    if (field->number == kStep) step = field->integer();
  }
  return step;
}

bool is_event_file_name(std::string_view name) {
  return name.find("tfevents") != name.npos;
}

int64_t drop_events_after(const std::string& folder, int64_t last_step) {
  int64_t dropped = 0;
  if (!std::filesystem::exists(folder)) return dropped;
  const Folder files = Folder::open(folder);
  for (const std::string& name : files.names()) {
    if (!is_event_file_name(name)) continue;
    const std::string path = files.path_of(name);
    const MappedFile file(path, {.pattern = AccessPattern::kSequential, .allow_empty = true});
    const EventRecords records = read_event_records(file.text());
    std::string kept;
    for (const std::string_view event : records.events) {
      if (step_of_event(event, path) <= last_step) {
        kept += event_record(event);
      } else {
        ++dropped;
      }
    }
    file.check();
    if (kept.size() < file.text().size()) write_file_atomically(path, kept);
  }
  return dropped;
}

}  // namespace shale
