#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shale/base/timeline.h"

namespace shale::models {

// File formats of trace viewers (ui.perfetto.dev, chrome://tracing). Each rank is a process with
// the tracks and counters of its record. Arrows join slices with the same flow.
enum class TraceFormat {
  kChrome,    // JSON in the Trace Event Format
  kPerfetto,  // protocol buffers: perfetto/trace/trace.proto
};

// Returns the format for the extension ".json" or ".pftrace". Throws ConfigError for others.
TraceFormat trace_format(std::string_view path);

// Encodes a rank's part of the file. Ranks must share one clock; times must not be negative.
std::string encode_trace(const TraceRecord& record, TraceFormat format);
// Joins the encoded parts of all ranks to a file.
std::string join_traces(std::span<const std::string> ranks, TraceFormat format);

// Reads a trace file. Returns a record for each rank, with slices sorted by begin, outer ones
// first. Throws MissingInputError if the file does not exist, DataError if it is invalid.
std::vector<TraceRecord> read_trace(const std::string& path);
std::vector<TraceRecord> parse_trace(std::string_view file, const std::string& source);

// Sorts the slices of all tracks by begin, outer ones first.
void sort_slices(TraceRecord& record);
// Replaces every time t of the record by map(t); `map` must preserve the order of times.
void map_times(TraceRecord& record, const std::function<int64_t(int64_t)>& map);

}  // namespace shale::models
