#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "shale/base/error.h"
#include "shale/base/json.h"
#include "shale/base/parse.h"
#include "shale/base/protobuf.h"
#include "shale/models/training/report/trace_fields_internal.h"
#include "shale/models/training/report/trace_file.h"
#include "shale/runtime/io/mapped_file.h"

namespace shale::models {
namespace {

using Slice = TraceRecord::Slice;
using About = TraceRecord::About;

// Record while it is being read.
struct Reading {
  TraceRecord record;
  std::map<std::string, uint32_t, std::less<>> places;

  uint32_t place_of(const std::string& name) {
    const auto [it, is_new] = places.try_emplace(name, static_cast<uint32_t>(places.size()));
    if (is_new) record.names.push_back(name);
    return it->second;
  }
  // Sets rank and host, given a process name such as "rank 3 (host)".
  void identify(std::string_view name, const std::string& source) {
    constexpr std::string_view kRank = "rank ";
    const size_t open = name.find(" (");
    const auto rank = name.starts_with(kRank) && open != name.npos && name.ends_with(")")
                          ? parse_int(name.substr(kRank.size(), open - kRank.size()))
                          : std::nullopt;
    if (!rank || *rank < 0 || *rank > std::numeric_limits<int>::max()) {
      throw DataError(
          cat(source, ": expected a process such as \"rank 0 (host)\", found ", excerpt(name)));
    }
    record.rank = static_cast<int>(*rank);
    record.host = std::string(name.substr(open + 2, name.size() - open - 3));
  }
  void add(const std::string& track, Slice slice, About about) {
    if (about != About{}) {
      slice.about = static_cast<int32_t>(record.about.size());
      record.about.push_back(std::move(about));
    }
    record.tracks[track].push_back(slice);
  }
};

std::vector<TraceRecord> sorted(std::map<int64_t, Reading> ranks, const std::string& source) {
  std::vector<TraceRecord> records;
  for (auto& [id, rank] : ranks) {
    for (auto& [track, slices] : rank.record.tracks) {
      std::stable_sort(slices.begin(), slices.end(), [](const Slice& a, const Slice& b) {
        return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
      });
    }
    records.push_back(std::move(rank.record));
  }
  if (records.empty())
    throw DataError(cat(source, ": the trace has no ranks, expected at least one"));
  std::sort(records.begin(), records.end(),
            [](const TraceRecord& a, const TraceRecord& b) { return a.rank < b.rank; });
  return records;
}

// ---- Chrome ----

class ChromeReader {
 public:
  explicit ChromeReader(const std::string& source) : source_(source) {}

  void read(const Json& events) {
    // Reads the names of tracks first, because they may follow the events.
    for (const Json& event : events) {
      if (text(event, "ph") == "M") read_name(event);
      if (text(event, "ph") == "s") starts_.insert({integer(event, "pid"), text(event, "id")});
    }
    for (const Json& event : events) {
      const std::string phase = text(event, "ph");
      if (phase == "X") read_slice(event);
      if (phase == "C") read_count(event);
    }
  }
  std::vector<TraceRecord> take() { return sorted(std::move(ranks_), source_); }

 private:
  const Json& at(const Json& event, const char* key) const {
    if (!event.contains(key)) {
      throw DataError(cat(source_, ": an event without \"", key, "\": ", excerpt(event.dump())));
    }
    return event[key];
  }
  std::string text(const Json& event, const char* key) const {
    const Json& value = at(event, key);
    if (!value.is_string()) {
      throw DataError(
          cat(source_, ": expected \"", key, "\" as a string, found ", excerpt(event.dump())));
    }
    return value.text();
  }
  int64_t integer(const Json& event, const char* key) const {
    const Json& value = at(event, key);
    if (!value.int64()) {
      throw DataError(
          cat(source_, ": expected \"", key, "\" as an integer, found ", excerpt(event.dump())));
    }
    return value.integer();
  }
  int64_t nanoseconds(const Json& event, const char* key) const {
    const Json& value = at(event, key);
    const double us = value.is_number() ? value.real() : -1;
    if (!(us >= 0 && us < 1e15)) {
      throw DataError(
          cat(source_, ": expected \"", key, "\" as microseconds, found ", excerpt(event.dump())));
    }
    return std::llround(us * 1000);
  }
  void read_name(const Json& event) {
    const std::string what = text(event, "name");
    const int64_t pid = integer(event, "pid");
    if (what == "process_name") {
      ranks_[pid].identify(text(at(event, "args"), "name"), source_);
    } else if (what == "thread_name") {
      tracks_[{pid, integer(event, "tid")}] = text(at(event, "args"), "name");
    }
  }
  void read_slice(const Json& event) {
    const int64_t pid = integer(event, "pid");
    const auto track = tracks_.find({pid, integer(event, "tid")});
    if (track == tracks_.end()) {
      throw DataError(
          cat(source_, ": an event refers to a track that has no name: ", excerpt(event.dump())));
    }
    Slice slice{.begin = nanoseconds(event, "ts")};
    slice.end = slice.begin + nanoseconds(event, "dur");
    slice.name = ranks_[pid].place_of(text(event, "name"));
    About about;
    if (const Json* args = event.find("args"); args != nullptr && args->is_object()) {
      for (const auto& [key, value] : args->items()) add_to(about, pid, key, value);
    }
    ranks_[pid].add(track->second, slice, std::move(about));
  }
  void add_to(About& about, int64_t pid, const std::string& key, const Json& value) const {
    if (key == kFlowKey && value.is_string()) {
      const std::string& id = value.text();
      std::from_chars(id.data(), id.data() + id.size(), about.flow, 16);
      about.starts_flow = starts_.count({pid, id}) > 0;
    } else if (value.is_string()) {
      about.texts.emplace_back(key, value.text());
    } else if (const auto number = value.int64()) {
      about.numbers.emplace_back(key, *number);
    }
  }
  void read_count(const Json& event) {
    const Json& value = at(at(event, "args"), "value");
    if (!value.is_number()) throw DataError(cat(source_, ": a counter has no value"));
    ranks_[integer(event, "pid")].record.counters[text(event, "name")].push_back(
        {.time = nanoseconds(event, "ts"), .value = value.get<double>()});
  }

  const std::string& source_;
  std::map<int64_t, Reading> ranks_;  // records by process id
  std::map<std::pair<int64_t, int64_t>, std::string> tracks_;
  std::set<std::pair<int64_t, std::string>> starts_;
};

// ---- Perfetto ----

// Maximum time in ns, so that differences of times cannot overflow.
constexpr int64_t kLatest = 4'000'000'000'000'000'000;

class PerfettoReader {
 public:
  explicit PerfettoReader(const std::string& source) : source_(source) {}

  void read(std::string_view file) {
    ProtoReader packets(file, source_);
    while (const auto packet = packets.next()) {
      if (packet->number == perfetto::kPacket) read_packet(packet->bytes);
    }
  }
  std::vector<TraceRecord> take() { return sorted(std::move(ranks_), source_); }

 private:
  struct Track {
    int64_t sequence = 0;
    std::string name;
    bool is_counter = false;
    std::vector<std::pair<Slice, About>> open;
  };
  struct Packet {
    int64_t time = 0, sequence = 0;
    std::string_view event, interned, descriptor;
  };

  void read_packet(std::string_view bytes) {
    Packet packet;
    ProtoReader reader(bytes, source_);
    while (const auto field = reader.next()) {
      switch (field->number) {
        case perfetto::kTime: packet.time = field->integer(); break;
        case perfetto::kSequence: packet.sequence = field->integer(); break;
        case perfetto::kEvent: packet.event = field->bytes; break;
        case perfetto::kInterned: packet.interned = field->bytes; break;
        case perfetto::kDescriptor: packet.descriptor = field->bytes; break;
        default: break;
      }
    }
    if (packet.time < 0 || packet.time > kLatest) {
      throw DataError(
          cat(source_, ": expected a time from 0 to ", kLatest, " ns, found ", packet.time));
    }
    if (!packet.interned.empty()) read_names(packet);
    if (!packet.descriptor.empty()) read_descriptor(packet);
    if (!packet.event.empty()) read_event(packet);
  }
  void read_names(const Packet& packet) {
    ProtoReader reader(packet.interned, source_);
    while (const auto entry = reader.next()) {
      if (entry->number != perfetto::kEventNames) continue;
      int64_t id = 0;
      std::string name;
      ProtoReader fields(entry->bytes, source_);
      while (const auto field = fields.next()) {
        if (field->number == perfetto::kId) id = field->integer();
        if (field->number == perfetto::kName) name = std::string(field->bytes);
      }
      names_[{packet.sequence, id}] = name;
    }
  }
  void read_descriptor(const Packet& packet) {
    int64_t uuid = 0;
    Track track{.sequence = packet.sequence};
    ProtoReader reader(packet.descriptor, source_);
    while (const auto field = reader.next()) {
      switch (field->number) {
        case perfetto::kUuid: uuid = field->integer(); break;
        case perfetto::kTrackName: track.name = std::string(field->bytes); break;
        case perfetto::kCounter: track.is_counter = true; break;
        case perfetto::kProcess: read_process(packet, field->bytes); break;
        default: break;
      }
    }
    tracks_[uuid] = std::move(track);
  }
  void read_process(const Packet& packet, std::string_view process) {
    ProtoReader reader(process, source_);
    while (const auto field = reader.next()) {
      if (field->number == perfetto::kProcessName) {
        ranks_[packet.sequence].identify(field->bytes, source_);
      }
    }
  }
  void read_event(const Packet& packet) {
    int64_t type = 0, uuid = 0, name = 0;
    double value = 0;
    About about;
    ProtoReader reader(packet.event, source_);
    while (const auto field = reader.next()) {
      switch (field->number) {
        case perfetto::kType: type = field->integer(); break;
        case perfetto::kTrack: uuid = field->integer(); break;
        case perfetto::kNameId: name = field->integer(); break;
        case perfetto::kValue: value = field->real(); break;
        case perfetto::kFlow: about.flow = field->value; break;
        case perfetto::kAnnotation: read_annotation(field->bytes, about); break;
        default: break;
      }
    }
    const auto found = tracks_.find(uuid);
    if (found == tracks_.end()) throw DataError(cat(source_, ": an event has no track"));
    Track& track = found->second;
    Reading& rank = ranks_[track.sequence];
    if (type == perfetto::kCount) {
      rank.record.counters[track.name].push_back({.time = packet.time, .value = value});
    } else if (type == perfetto::kBegin) {
      const Slice slice{.begin = packet.time,
                        .name = rank.place_of(names_[{packet.sequence, name}])};
      track.open.emplace_back(slice, std::move(about));
    } else if (type == perfetto::kEnd) {
      if (track.open.empty())
        throw DataError(cat(source_, ": an event ends a slice that has not begun"));
      auto [slice, what] = std::move(track.open.back());
      track.open.pop_back();
      if (packet.time < slice.begin) {
        throw DataError(cat(source_, ": a slice ends before it begins"));
      }
      slice.end = packet.time;
      rank.add(track.name, slice, std::move(what));
    }
  }
  void read_annotation(std::string_view bytes, About& about) const {
    std::string key;
    std::optional<int64_t> number;
    std::optional<std::string> text;
    ProtoReader reader(bytes, source_);
    while (const auto field = reader.next()) {
      if (field->number == perfetto::kKey) key = std::string(field->bytes);
      if (field->number == perfetto::kInteger) number = field->integer();
      if (field->number == perfetto::kString) text = std::string(field->bytes);
    }
    if (number) about.numbers.emplace_back(key, *number);
    if (text) about.texts.emplace_back(key, *text);
  }

  const std::string& source_;
  std::map<int64_t, Reading> ranks_;  // records by packet sequence id
  std::map<int64_t, Track> tracks_;
  std::map<std::pair<int64_t, int64_t>, std::string> names_;
};

}  // namespace

std::vector<TraceRecord> parse_trace(std::string_view file, const std::string& source) {
  constexpr JsonLimits kLimits = {.max_bytes = int64_t{1} << 30, .max_values = int64_t{1} << 27};
  if (!file.starts_with("{")) {
    PerfettoReader reader(source);
    reader.read(file);
    return reader.take();
  }
  const Json whole = Json::parse(file, kLimits, source);
  if (!whole.contains("traceEvents") || !whole["traceEvents"].is_array()) {
    throw DataError(cat(source, ": expected a list \"traceEvents\""));
  }
  ChromeReader reader(source);
  reader.read(whole["traceEvents"]);
  return reader.take();
}

std::vector<TraceRecord> read_trace(const std::string& path) {
  const MappedFile file(path, {.pattern = AccessPattern::kSequential, .allow_empty = true});
  std::vector<TraceRecord> records = parse_trace(file.text(), path);
  file.check();
  return records;
}

}  // namespace shale::models
