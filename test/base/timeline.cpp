#include "shale/base/timeline.h"

#include <ctime>
#include <thread>

#include "shale/test/support/catch.h"

namespace shale {
namespace {

std::vector<std::string> names_of(const TraceRecord& record, const std::string& track) {
  std::vector<std::string> names;
  for (const TraceRecord::Slice& slice : record.tracks.at(track)) {
    names.push_back(record.names[slice.name]);
  }
  return names;
}

// Numbers its marks from 0. A mark on a null stream gets no number.
class CountedMarks final : public StreamMarks {
 public:
  size_t mark(void* stream) override { return stream == nullptr ? kNone : count_++; }

 private:
  size_t count_ = 0;
};

// Tracer that records the names of ranges.
class ShownRanges final : public Tracer {
 public:
  void enter(std::string_view name) override { text += std::string(name) + "("; }
  void leave() noexcept override { text += ")"; }
  std::string text;
};

double thread_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace

TEST_CASE("a timeline has the scopes of one thread, each inside the one around it", "[timeline]") {
  Timeline timeline;
  { const TraceScope before(&timeline, "before"); }
  timeline.start();
  {
    const TraceScope outer(&timeline, "outer");
    { const TraceScope inner(&timeline, "inner"); }
    std::thread([&] { const TraceScope elsewhere(&timeline, "elsewhere"); }).join();
  }
  timeline.stop();
  { const TraceScope after(&timeline, "after"); }
  const TraceRecord record = timeline.take();
  CHECK(names_of(record, "host") == std::vector<std::string>{"inner", "outer"});
  const auto& slices = record.tracks.at("host");
  CHECK(slices[1].begin <= slices[0].begin);
  CHECK(slices[0].begin <= slices[0].end);
  CHECK(slices[0].end <= slices[1].end);
  CHECK(timeline.take().tracks.at("host").empty());
}

TEST_CASE("a scope that is closed ends those in it that nobody closed", "[timeline]") {
  Timeline timeline;
  timeline.start();
  const size_t outer = timeline.open("outer");
  timeline.open("forgotten");
  timeline.close(outer);
  timeline.close(outer);  // a second close() finds nothing open
  timeline.open("open to the end");
  timeline.stop();
  CHECK(names_of(timeline.take(), "host") ==
        std::vector<std::string>{"forgotten", "outer", "open to the end"});
}

TEST_CASE("slices and counters come from any thread, and only while it records", "[timeline]") {
  Timeline timeline;
  const auto now = Timeline::Clock::now();
  timeline.add_slice("disk", "write", now, now);
  timeline.count("bytes", 1);
  timeline.start();
  std::thread([&] {
    timeline.add_slice("disk", "write", now, now, {.flow = 7, .texts = {{"for", "x"}}});
    timeline.count("bytes", 2);
  }).join();
  timeline.stop();
  const TraceRecord record = timeline.take();
  REQUIRE(record.tracks.at("disk").size() == 1);
  CHECK(record.about.at(0).flow == 7);
  REQUIRE(record.counters.at("bytes").size() == 1);
  CHECK(record.counters.at("bytes")[0].value == 2);
}

TEST_CASE("scopes are also when a device runs what was queued in them", "[timeline]") {
  Timeline timeline;
  CountedMarks marks;
  ShownRanges ranges;
  int stream = 0, other = 0;
  timeline.start({.marks = &marks, .stream = &stream, .ranges = &ranges});
  {
    const TraceScope outer(&timeline, "outer");
    { const TraceScope inner(&timeline, "inner"); }
    const size_t begin = timeline.mark(&other);
    timeline.add_device_slice("collectives: all", "all_gather", begin, timeline.mark(&other),
                              {.flow = 7});
    timeline.add_device_slice("collectives: all", "captured", timeline.mark(nullptr), begin);
  }
  timeline.stop();
  CHECK(timeline.mark(&stream) == StreamMarks::kNone);  // without a recording, no mark is set
  CHECK(ranges.text == "outer(inner())");
  // The simulated device reaches mark n at time 1000 n, whenever the mark was set.
  const TraceRecord record =
      timeline.take([](size_t mark) { return static_cast<int64_t>(1000 * mark); });
  CHECK(names_of(record, "host") == names_of(record, "device"));
  const auto& slices = record.tracks.at("device");
  REQUIRE(slices.size() == 2);
  CHECK((slices[0].begin == 1000 && slices[0].end == 2000));  // slice of the inner scope
  CHECK((slices[1].begin == 0 && slices[1].end == 5000));
  const auto& gathers = record.tracks.at("collectives: all");
  REQUIRE(gathers.size() == 1);
  CHECK((gathers[0].begin == 3000 && gathers[0].end == 4000));
  CHECK(record.about.at(static_cast<size_t>(gathers[0].about)).flow == 7);
}

TEST_CASE("a scope costs a microsecond at most while it is recorded, and less else", "[timeline]") {
  Timeline timeline;
  const auto seconds_of = [&timeline](int64_t scopes) {
    const double before = thread_seconds();
    for (int64_t i = 0; i < scopes; ++i) const TraceScope scope(&timeline, "matmul");
    return (thread_seconds() - before) / static_cast<double>(scopes);
  };
  seconds_of(1000);
  const double off = seconds_of(100'000);
  timeline.start();
  seconds_of(1000);
  const double on = seconds_of(100'000);
  timeline.stop();
  const double without = [] {
    const double before = thread_seconds();
    for (int64_t i = 0; i < 100'000; ++i) const TraceScope scope(nullptr, "matmul");
    return (thread_seconds() - before) / 100'000;
  }();
  std::printf(
      "a scope: %.0f ns recorded, %.0f ns with a timeline that does not record, %.1f ns "
      "without\n",
      1e9 * on, 1e9 * off, 1e9 * without);
  // A step of a 124M model takes at least 100 ms and opens about 1,000 scopes. With 1 us per scope,
  // recording costs 1% of the step.
  CHECK(on < 1e-6);
  CHECK(off < 1e-6);
  CHECK(without < 5e-8);
}

}  // namespace shale
