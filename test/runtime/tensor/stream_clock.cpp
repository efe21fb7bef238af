#include "shale/runtime/tensor/stream_clock.h"

#include <stdexcept>
#include <thread>

#include "shale/kernels/simt/engine/stream.h"
#include "shale/runtime/tensor/device_marks.h"
#include "shale/test/support/catch.h"

namespace shale {
namespace {

int64_t host_ns() {
  return Timeline::nanoseconds(Timeline::Clock::now());
}

// A device clock with another origin that runs 1% fast and records events immediately.
class SkewedClock final : public StreamClock {
 public:
  static constexpr double kRate = 1.01;
  int made = 0;

 private:
  struct Passed final : Point {
    double seconds = 0;
  };
  std::unique_ptr<Point> make_point() override {
    ++made;
    return std::make_unique<Passed>();
  }
  void record(Point& point, void*) override {
    static_cast<Passed&>(point).seconds = 1e6 + kRate * 1e-9 * static_cast<double>(host_ns());
  }
  bool passed(const Point&) override { return true; }
  void wait(const Point&, void*) override {}
  double seconds_between(const Point& from, const Point& to) override {
    return static_cast<const Passed&>(to).seconds - static_cast<const Passed&>(from).seconds;
  }
};

}  // namespace

TEST_CASE("marks of a device are read in the host's time, whatever its clock shows", "[stream]") {
  const auto backend = make_cpu_backend();
  DeviceMarks marks(*backend, nullptr, std::make_unique<SkewedClock>());
  marks.anchor();
  struct Mark {
    int64_t before, after;
    size_t number;
  };
  std::vector<Mark> set;
  for (int i = 0; i < 5; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(4));
    const int64_t before = host_ns();
    const size_t number = marks.mark(nullptr);
    set.push_back({before, host_ns(), number});
    marks.read();
  }
  marks.anchor();
  // Without a second anchor, the last mark would be 200 us late: 1% of 20 ms.
  CHECK(marks.error_ns() < 100'000);
  for (const Mark& mark : set) {
    CHECK(marks.nanoseconds(mark.number) >= mark.before - marks.error_ns() - 100);
    CHECK(marks.nanoseconds(mark.number) <= mark.after + marks.error_ns() + 100);
  }
}

TEST_CASE("what takes the time of a mark is used again when it was read", "[stream]") {
  SkewedClock clock;
  int first = 0, second = 0;
  for (int i = 0; i < 100; ++i) {
    clock.mark(&first);
    clock.mark(&second);
    clock.read();
  }
  CHECK(clock.made <= 4);
  CHECK(clock.seconds(0, 199) > 0);
  clock.forget_marks();
  CHECK(clock.mark(&second) == 0);
}

TEST_CASE("marks tell when a stream came by, not when they were set", "[stream]") {
  const auto backend = make_emu_backend({.type = DeviceType::kEmu});
  void* const stream = backend->create_stream();
  const auto clock = make_stream_clock(backend->device());
  const size_t from = clock->mark(stream);
  const auto queued = StreamClock::HostClock::now();
  const size_t to = clock->mark(stream);
  while (StreamClock::HostClock::now() - queued < std::chrono::milliseconds(50)) {
  }
  clock->read();
  // Nothing waited for the stream, so no mark has run yet.
  CHECK_THROWS_AS(clock->seconds(from, to), std::out_of_range);
  clock->read_all();
  CHECK(clock->seconds(from, to) >= 0);
  // Both marks run when the host waits, after its own loop.
  CHECK(clock->seconds(from, to) < 50e-3);
  clock->forget_marks();
  CHECK(clock->mark(stream) == 0);
  backend->synchronize(stream);
  backend->destroy_stream(stream);
}

TEST_CASE("a timeline has when an emulated device ran, not when it was given work", "[stream]") {
  const auto backend = make_emu_backend({.type = DeviceType::kEmu});
  void* const stream = backend->create_stream();
  Timeline timeline;
  DeviceMarks marks(*backend, stream);
  marks.anchor();
  timeline.start({.marks = &marks, .stream = stream});
  {
    const TraceScope scope(&timeline, "kernel");
    static_cast<emulator::Stream*>(stream)->enqueue(
        [] { std::this_thread::sleep_for(std::chrono::milliseconds(5)); });
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(10));
  const int64_t waited = host_ns();
  backend->synchronize(stream);
  const int64_t over = host_ns();
  timeline.stop();
  marks.anchor();
  const TraceRecord record = timeline.take([&](size_t mark) { return marks.nanoseconds(mark); });
  REQUIRE(record.tracks.at("device").size() == 1);
  const TraceRecord::Slice host = record.tracks.at("host")[0];
  const TraceRecord::Slice device = record.tracks.at("device")[0];
  CHECK(host.end < waited - 5'000'000);
  CHECK(device.begin >= waited - marks.error_ns());
  CHECK(device.end - device.begin >= 4'900'000);
  CHECK(device.end <= over + marks.error_ns());
  backend->destroy_stream(stream);
}

TEST_CASE("a captured stream has no marks", "[stream]") {
  const auto backend = make_emu_backend({.type = DeviceType::kEmu});
  void* const stream = backend->create_stream();
  DeviceMarks marks(*backend, stream);
  backend->begin_capture(stream);
  CHECK(marks.mark(stream) == StreamMarks::kNone);
  backend->end_capture(stream);
  CHECK(marks.mark(stream) != StreamMarks::kNone);
  backend->synchronize(stream);
  backend->destroy_stream(stream);
}

}  // namespace shale
