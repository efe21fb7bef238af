#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shale/base/timeline.h"

namespace shale::models {

// Files that trace viewers read (ui.perfetto.dev, chrome://tracing): of all ranks, a process each
// with the tracks and counters of its record. Slices that have a flow in common are joined by
// arrows.
enum class TraceFormat {
  kChrome,    // JSON: Trace Event Format
  kPerfetto,  // protocol buffers: perfetto/trace/trace.proto
};

// By the end of the file's name, ".json" or ".pftrace". Throws ConfigError for another.
TraceFormat trace_format(std::string_view path);

// What the file has of a rank. Times are of a clock that all ranks share, and not negative.
std::string encode_trace(const TraceRecord& record, TraceFormat format);
// The file of what each rank has.
std::string join_traces(std::span<const std::string> ranks, TraceFormat format);

// What such a file has, by rank; slices by when they begin, outer ones first. Throws
// MissingInputError if there is no such file, DataError for one that is none of ours.
std::vector<TraceRecord> read_trace(const std::string& path);
std::vector<TraceRecord> parse_trace(std::string_view file, const std::string& source);

// Sorts the slices of all tracks so.
void sort_slices(TraceRecord& record);
// Puts every time where `map` has it, which keeps their order.
void map_times(TraceRecord& record, const std::function<int64_t(int64_t)>& map);

}  // namespace shale::models
