#include "shale/models/training/report/trace_file.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <limits>

#include "shale/base/error.h"
#include "shale/base/json.h"
#include "shale/base/protobuf.h"
#include "shale/models/training/report/trace_fields_internal.h"

namespace shale::models {
namespace {

using Slice = TraceRecord::Slice;
using About = TraceRecord::About;

std::string process_name(const TraceRecord& record) {
  return cat("rank ", record.rank, " (", record.host, ")");
}

// Prints microseconds with three decimals.
std::string microseconds(int64_t ns) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%lld.%03d", static_cast<long long>(ns / 1000),
                static_cast<int>(ns % 1000));
  return text.data();
}

std::string hexadecimal(uint64_t value) {
  std::array<char, 20> text{};
  std::snprintf(text.data(), text.size(), "%016llx", static_cast<unsigned long long>(value));
  return text.data();
}

// Formats the events of a rank as JSON, one per line, separated by commas.
class ChromeEvents {
 public:
  explicit ChromeEvents(const TraceRecord& record) : record_(record) {
    name("process_name", 0, process_name(record));
    add(cat("\"ph\":\"M\",\"pid\":", record.rank,
            ",\"tid\":0,\"name\":\"process_sort_index\",\"args\":{\"sort_index\":", record.rank,
            "}"));
    int64_t track = 0;
    for (const auto& [title, slices] : record.tracks) {
      name("thread_name", ++track, title);
      for (const Slice& slice : slices) add_slice(slice, track);
    }
    for (const auto& [title, points] : record.counters) {
      for (const TraceRecord::Point& point : points) {
        add(cat("\"ph\":\"C\",\"pid\":", record.rank, ",\"name\":", json_quote(title), ",\"ts\":",
                microseconds(point.time), ",\"args\":{\"value\":", Json(point.value).dump(), "}"));
      }
    }
  }
  std::string take() { return std::move(events_); }

 private:
  void add(std::string_view members) {
    events_ += cat(events_.empty() ? "{" : ",\n{", members, "}");
  }
  void name(std::string_view what, int64_t track, std::string_view text) {
    add(cat("\"ph\":\"M\",\"pid\":", record_.rank, ",\"tid\":", track, ",\"name\":\"", what,
            "\",\"args\":{\"name\":", json_quote(text), "}"));
  }
  void add_slice(const Slice& slice, int64_t track) {
    const std::string place = cat("\"pid\":", record_.rank, ",\"tid\":", track);
    std::string args;
    if (slice.about >= 0) args = cat(",\"args\":{", members_of(about(slice)), "}");
    add(cat("\"ph\":\"X\",", place, ",\"ts\":", microseconds(slice.begin),
            ",\"dur\":", microseconds(slice.end - slice.begin),
            ",\"name\":", json_quote(record_.names[slice.name]), args));
    if (slice.about < 0 || about(slice).flow == 0) return;
    // Viewers draw arrows forward in time, so an arrow goes from the begin of one slice to the ends
    // of the other slices.
    const bool starts = about(slice).starts_flow;
    add(cat("\"ph\":\"", starts ? "s\"," : "f\",\"bp\":\"e\",", place,
            ",\"cat\":\"flow\",\"name\":\"flow\",\"id\":\"", hexadecimal(about(slice).flow),
            "\",\"ts\":", microseconds(starts ? slice.begin : slice.end)));
  }
  const About& about(const Slice& slice) const {
    return record_.about[static_cast<size_t>(slice.about)];
  }
  static std::string members_of(const About& about) {
    std::string members;
    const auto member = [&members](std::string_view key, const std::string& value) {
      members += cat(members.empty() ? "" : ",", json_quote(key), ":", value);
    };
    for (const auto& [key, value] : about.numbers) member(key, cat(value));
    for (const auto& [key, value] : about.texts) member(key, json_quote(value));
    if (about.flow != 0) member(kFlowKey, cat("\"", hexadecimal(about.flow), "\""));
    return members;
  }

  const TraceRecord& record_;
  std::string events_;
};

// Encodes the packets of a rank. Slice names are interned: written once, then referred to by index.
class PerfettoPackets {
 public:
  explicit PerfettoPackets(const TraceRecord& record)
      : record_(record), sequence_(record.rank + 1), next_track_(int64_t{sequence_} << 32) {
    const int64_t process = next_track_++;
    ProtoMessage identity;
    identity.integer(perfetto::kPid, kFirstPid + record.rank)
        .text(perfetto::kProcessName, process_name(record));
    ProtoMessage first = descriptor(
        ProtoMessage().integer(perfetto::kUuid, process).message(perfetto::kProcess, identity));
    first.message(perfetto::kInterned, names());
    write(first.integer(perfetto::kFlags, perfetto::kStateCleared));
    for (const auto& [title, slices] : record.tracks) {
      const int64_t track = next_track_++;
      write(descriptor(child(track, process, title)));
      add_slices(slices, track);
    }
    for (const auto& [title, points] : record.counters) {
      const int64_t track = next_track_++;
      ProtoMessage unit;
      if (title.ends_with("bytes")) unit.integer(perfetto::kUnit, perfetto::kBytes);
      write(descriptor(child(track, process, title).message(perfetto::kCounter, unit)));
      for (const TraceRecord::Point& point : points) {
        ProtoMessage event = event_of(perfetto::kCount, track);
        write(packet_of(point.time, event.real(perfetto::kValue, point.value)));
      }
    }
  }
  std::string take() { return std::move(bytes_); }

 private:
  static constexpr int64_t kFirstPid = 1000;  // viewers treat process 0 specially

  void write(const ProtoMessage& packet) {
    ProtoMessage whole = packet;
    whole.integer(perfetto::kSequence, sequence_);
    bytes_ += ProtoMessage().message(perfetto::kPacket, whole).bytes();
  }
  ProtoMessage names() const {
    ProtoMessage all;
    for (size_t i = 0; i < record_.names.size(); ++i) {
      all.message(perfetto::kEventNames, ProtoMessage()
                                             .integer(perfetto::kId, static_cast<int64_t>(i) + 1)
                                             .text(perfetto::kName, record_.names[i]));
    }
    return all;
  }
  static ProtoMessage descriptor(const ProtoMessage& track) {
    return ProtoMessage().message(perfetto::kDescriptor, track);
  }
  static ProtoMessage child(int64_t track, int64_t parent, std::string_view title) {
    return ProtoMessage()
        .integer(perfetto::kUuid, track)
        .text(perfetto::kTrackName, title)
        .integer(perfetto::kParent, parent);
  }
  static ProtoMessage event_of(int64_t type, int64_t track) {
    return ProtoMessage().integer(perfetto::kType, type).integer(perfetto::kTrack, track);
  }
  static ProtoMessage packet_of(int64_t time, const ProtoMessage& event) {
    return ProtoMessage()
        .integer(perfetto::kTime, time)
        .integer(perfetto::kFlags, perfetto::kNeedsState)
        .message(perfetto::kEvent, event);
  }
  // Writes begins and ends in order of time. Each end closes the innermost open slice.
  void add_slices(const std::vector<Slice>& slices, int64_t track) {
    std::vector<int64_t> ends;
    const auto end_until = [&](int64_t time) {
      for (; !ends.empty() && ends.back() <= time; ends.pop_back()) {
        write(packet_of(ends.back(), event_of(perfetto::kEnd, track)));
      }
    };
    for (const Slice& slice : slices) {
      end_until(slice.begin);
      write(packet_of(slice.begin, begin_of(slice, track)));
      ends.push_back(ends.empty() ? slice.end : std::min(slice.end, ends.back()));
    }
    end_until(std::numeric_limits<int64_t>::max());
  }
  ProtoMessage begin_of(const Slice& slice, int64_t track) const {
    ProtoMessage event = event_of(perfetto::kBegin, track);
    event.integer(perfetto::kNameId, int64_t{slice.name} + 1);
    if (slice.about < 0) return event;
    const About& about = record_.about[static_cast<size_t>(slice.about)];
    if (about.flow != 0) event.fixed64(perfetto::kFlow, about.flow);
    for (const auto& [key, value] : about.numbers) {
      event.message(perfetto::kAnnotation,
                    ProtoMessage().text(perfetto::kKey, key).integer(perfetto::kInteger, value));
    }
    for (const auto& [key, value] : about.texts) {
      event.message(perfetto::kAnnotation,
                    ProtoMessage().text(perfetto::kKey, key).text(perfetto::kString, value));
    }
    return event;
  }

  const TraceRecord& record_;
  int sequence_;
  int64_t next_track_;
  std::string bytes_;
};

}  // namespace

TraceFormat trace_format(std::string_view path) {
  if (path.ends_with(".json")) return TraceFormat::kChrome;
  if (path.ends_with(".pftrace")) return TraceFormat::kPerfetto;
  throw ConfigError(
      cat("--trace: expected a file that ends in .json (Chrome) or .pftrace (Perfetto), or for "
          "memory in .svg or .pickle, found '",
          path, "'"));
}

std::string encode_trace(const TraceRecord& record, TraceFormat format) {
  TraceRecord sorted = record;
  sort_slices(sorted);
  return format == TraceFormat::kChrome ? ChromeEvents(sorted).take()
                                        : PerfettoPackets(sorted).take();
}

std::string join_traces(std::span<const std::string> ranks, TraceFormat format) {
  std::string file;
  if (format == TraceFormat::kPerfetto) {
    for (const std::string& rank : ranks) file += rank;
    return file;
  }
  file = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
  bool is_first = true;
  for (const std::string& rank : ranks) {
    if (rank.empty()) continue;
    file += cat(is_first ? "" : ",\n", rank);
    is_first = false;
  }
  return file + "\n]}\n";
}

void sort_slices(TraceRecord& record) {
  for (auto& [title, slices] : record.tracks) {
    // Reverses the order of slices with equal times: the inner slice was recorded first, because it
    // ended first.
    std::reverse(slices.begin(), slices.end());
    std::stable_sort(slices.begin(), slices.end(), [](const Slice& a, const Slice& b) {
      return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
    });
  }
}

void map_times(TraceRecord& record, const std::function<int64_t(int64_t)>& map) {
  for (auto& [title, slices] : record.tracks) {
    for (Slice& slice : slices) slice.begin = map(slice.begin), slice.end = map(slice.end);
  }
  for (auto& [title, points] : record.counters) {
    for (TraceRecord::Point& point : points) point.time = map(point.time);
  }
}

}  // namespace shale::models
