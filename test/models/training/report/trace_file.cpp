#include "shale/models/training/report/trace_file.h"

#include <algorithm>
#include <limits>

#include "shale/base/error.h"
#include "shale/test/support/catch.h"

namespace shale::models {
namespace {

using About = TraceRecord::About;

// Returns a trace of a rank; slices are in the order of their ends, as in a timeline.
TraceRecord record_of(int rank) {
  TraceRecord record{
      .rank = rank, .host = "node-\"1\"", .names = {"step 3", "matmul", "all_gather"}};
  record.about = {{.flow = 0xfedcba9876543210,
                   .starts_flow = rank == 0,
                   .numbers = {{"bytes", int64_t{1} << 40}, {"call", 3}},
                   .texts = {{"for", "h.0 \\ \"parameters\""}, {"group", "world"}}}};
  record.tracks["host"] = {{.begin = 200, .end = 1200, .name = 1},
                           {.begin = 1300, .end = 1300, .name = 1},
                           {.begin = 200, .end = 1'000'000'007, .name = 0}};
  record.tracks["collectives: world"] = {{.begin = 250 + rank, .end = 900, .name = 2, .about = 0}};
  record.counters["memory, bytes"] = {{.time = 200, .value = 4096}, {.time = 999, .value = 0.5}};
  return record;
}

// Returns the record in the form that readers produce: names in sorted order.
TraceRecord normal(TraceRecord record) {
  sort_slices(record);
  std::vector<std::string> names = record.names;
  std::sort(names.begin(), names.end());
  for (auto& [track, slices] : record.tracks) {
    for (TraceRecord::Slice& slice : slices) {
      const auto place = std::find(names.begin(), names.end(), record.names[slice.name]);
      slice.name = static_cast<uint32_t>(place - names.begin());
    }
  }
  record.names = names;
  // Perfetto's format does not store starts_flow.
  for (About& about : record.about) about.starts_flow = false;
  return record;
}

std::string file_of(TraceFormat format) {
  const std::vector<std::string> ranks = {encode_trace(record_of(0), format),
                                          encode_trace(record_of(1), format)};
  return join_traces(ranks, format);
}

}  // namespace

TEST_CASE("both formats are read back to what was written", "[trace_file]") {
  for (const TraceFormat format : {TraceFormat::kChrome, TraceFormat::kPerfetto}) {
    CAPTURE(format == TraceFormat::kChrome);
    const auto records = parse_trace(file_of(format), "file");
    REQUIRE(records.size() == 2);
    for (int rank = 0; rank < 2; ++rank) {
      const TraceRecord found = normal(records[static_cast<size_t>(rank)]);
      const TraceRecord want = normal(record_of(rank));
      CHECK(found.rank == want.rank);
      CHECK(found.host == want.host);
      CHECK(found.names == want.names);
      CHECK(found.tracks == want.tracks);
      CHECK(found.about == want.about);
      CHECK(found.counters == want.counters);
    }
  }
}

TEST_CASE("an arrow goes from where the first rank begins to where the others end",
          "[trace_file]") {
  const std::string file = file_of(TraceFormat::kChrome);
  CHECK(test::contains(file,
                       "\"ph\":\"s\",\"pid\":0,\"tid\":1,\"cat\":\"flow\",\"name\":\"flow\","
                       "\"id\":\"fedcba9876543210\",\"ts\":0.250"));
  CHECK(test::contains(file,
                       "\"ph\":\"f\",\"bp\":\"e\",\"pid\":1,\"tid\":1,\"cat\":\"flow\","
                       "\"name\":\"flow\",\"id\":\"fedcba9876543210\",\"ts\":0.900"));
}

// The expected bytes are those of an example that Perfetto's own reader has accepted: the track of
// a process.
TEST_CASE("packets are what perfetto reads", "[trace_file]") {
  TraceRecord record{.rank = 0, .host = "host a"};
  const std::string packet = encode_trace(record, TraceFormat::kPerfetto);
  CHECK(test::contains(packet, std::string("\x1a\x14\x08\xe8\x07\x32\x0f", 7) + "rank 0 (host a)"));
}

TEST_CASE("what is no trace is named with its file", "[trace_file]") {
  const auto problem = [](const std::string& file) -> std::string {
    try {
      parse_trace(file, "the file");
    } catch (const DataError& error) {
      return error.what();
    }
    return "nothing";
  };
  CHECK(test::contains(problem(""), "the file: the trace has no ranks"));
  CHECK(test::contains(problem("{}"), "traceEvents"));
  CHECK(test::contains(problem("{\"traceEvents\":[1]}"), "without \"ph\""));
  CHECK(test::contains(problem("{\"traceEvents\":[{\"ph\":\"X\",\"pid\":0,\"tid\":1}]}"),
                       "track that has no name"));
  CHECK(test::contains(problem("{\"traceEvents\":[{\"ph\":\"M\",\"pid\":0,\"tid\":0,\"name\":"
                               "\"process_name\",\"args\":{\"name\":\"firefox\"}}]}"),
                       "found firefox"));
  CHECK(test::contains(problem("\x0a\xff"), "the file"));
  const std::string whole = file_of(TraceFormat::kPerfetto);
  CHECK(test::contains(problem(whole.substr(0, whole.size() - 3)), "the file"));
}

TEST_CASE("a trace has no times whose differences overflow", "[trace_file]") {
  using Int = std::numeric_limits<int64_t>;
  for (const int64_t begin : {Int::min(), int64_t{-1}, Int::max()}) {
    CAPTURE(begin);
    const TraceRecord record{
        .host = "h", .names = {"step 1"}, .tracks = {{"host", {{.begin = begin, .end = begin}}}}};
    const std::string file = encode_trace(record, TraceFormat::kPerfetto);
    CHECK_THROWS_WITH(parse_trace(file, "f"), Catch::Matchers::Contains("expected a time from 0"));
  }
  const TraceRecord backwards{
      .host = "h", .names = {"step 1"}, .tracks = {{"host", {{.begin = 9, .end = 3}}}}};
  CHECK_THROWS_WITH(parse_trace(encode_trace(backwards, TraceFormat::kPerfetto), "f"),
                    Catch::Matchers::Contains("ends before it begins"));
}

TEST_CASE("the format is that of the name's end", "[trace_file]") {
  CHECK(trace_format("a/b.json") == TraceFormat::kChrome);
  CHECK(trace_format("b.pftrace") == TraceFormat::kPerfetto);
  CHECK_THROWS_AS(trace_format("b.txt"), ConfigError);
}

}  // namespace shale::models
