#include <functional>
#include <memory>

#include "shale/kernels/simt/simt.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/emulator.h"

namespace shale::kernels::emu {
namespace {

__global__ void add_kernel(int* p, int value) {
  p[threadIdx.x] += value;
}
__global__ void add_from_kernel(int* to, const int* from) {
  to[threadIdx.x] += from[threadIdx.x];
}

using emulator::Options;
using emulator::Recording;
using emulator::Stream;
using emulator::StreamSet;
using test::contains;
using test::message_of;

constexpr simt::LaunchConfig kWarp = {.grid = 1, .block = 32};

void add(Stream* stream, int* p, int value) {
  const Exec exec{.device = {.type = DeviceType::kEmu, .arch = 90}, .stream = stream, .threads = 1};
  simt::launch(add_kernel, kWarp, exec, p, value);
}
void add_from(Stream* stream, int* to, const int* from) {
  const Exec exec{.device = {.type = DeviceType::kEmu, .arch = 90}, .stream = stream, .threads = 1};
  simt::launch(add_from_kernel, kWarp, exec, to, from);
}

struct TwoStreams {
  explicit TwoStreams(const Options& options = {})
      : streams(options), origin(streams.create()), other(streams.create()) {}
  std::string refused(const std::function<void()>& call) { return message_of<InternalError>(call); }
  StreamSet streams;
  Stream *origin, *other;
};

// Records three additions: a += 1 and c += b on the captured stream, and between them b += a on
// another stream, which is forked from it and joined to it if `join`. Replays the recording three
// times, and adds 10 to a after each replay.
int forked_and_joined(const Options& options, bool join) {
  TwoStreams s(options);
  int a[32] = {}, b[32] = {}, c[32] = {};
  s.streams.begin_capture(s.origin);
  add(s.origin, a, 1);
  s.streams.wait(s.other, s.streams.record(s.origin));
  add_from(s.other, b, a);
  const auto done = s.streams.record(s.other);
  if (join) s.streams.wait(s.origin, done);
  add_from(s.origin, c, b);
  if (!join) s.streams.wait(s.origin, done);  // joins only after c += b
  const std::unique_ptr<Recording> recording = s.streams.end_capture(s.origin);
  for (int i = 0; i < 3; ++i) {
    recording->replay(*s.origin);
    add(s.origin, a, 10);
  }
  s.streams.synchronize(s.origin);
  return c[31];
}

}  // namespace

TEST_CASE("captured work runs at each replay and not before", "[kernels][emulator]") {
  TwoStreams s;
  int a[32] = {};
  s.streams.begin_capture(s.origin);
  add(s.origin, a, 1);
  CHECK(s.streams.captures(s.origin));
  CHECK_FALSE(s.streams.captures(s.other));
  const auto recording = s.streams.end_capture(s.origin);
  s.streams.synchronize(s.origin);
  CHECK(a[31] == 0);
  recording->replay(*s.origin);
  recording->replay(*s.other);  // a replay may use any stream
  s.streams.synchronize(nullptr);
  CHECK(a[31] == 2);
}

TEST_CASE("streams that join a capture are ordered by its events alone", "[kernels][emulator]") {
  int wrong = 0;
  for (const Options& options : test::emulator_orders()) {
    CAPTURE(test::describe(options));
    // In the three replays, a becomes 1, 12, 23; b 1, 13, 36; c 1, 14, 50.
    CHECK(forked_and_joined(options, true) == 50);
    wrong += forked_and_joined(options, false) != 50;
  }
  CHECK(wrong > 0);
}

TEST_CASE("queued work outlives its recording", "[kernels][emulator]") {
  TwoStreams s;
  int a[32] = {};
  s.streams.begin_capture(s.origin);
  add(s.origin, a, 1);
  auto recording = s.streams.end_capture(s.origin);
  recording->replay(*s.origin);
  recording.reset();
  s.streams.synchronize(s.origin);
  CHECK(a[31] == 1);
}

TEST_CASE("the host cannot wait for captured work", "[kernels][emulator]") {
  TwoStreams s;
  int a[32] = {};
  s.streams.begin_capture(s.origin);
  add(s.origin, a, 1);
  const auto event = s.streams.record(s.origin);
  const char* want = "expected no waiting by the host";
  CHECK(contains(s.refused([&] { s.streams.synchronize(s.origin); }), want));
  CHECK(contains(s.refused([&] { s.streams.synchronize(nullptr); }), want));
  CHECK(contains(s.refused([&] { s.streams.synchronize(*event); }), want));
  CHECK(contains(s.refused([&] { s.streams.done(*event); }), want));
  s.streams.synchronize(s.other);  // this stream is not captured
  static_cast<void>(s.streams.end_capture(s.origin));
  s.streams.synchronize(s.origin);
  CHECK(contains(s.refused([&] { s.streams.done(*event); }), want));
}

TEST_CASE("a capture takes no events from outside and leaves none behind", "[kernels][emulator]") {
  TwoStreams s;
  int a[32] = {};
  add(s.other, a, 1);
  const auto before = s.streams.record(s.other);
  s.streams.begin_capture(s.origin);
  CHECK(contains(s.refused([&] { s.streams.wait(s.origin, before); }), "outside of the capture"));
  const auto within = s.streams.record(s.origin);
  static_cast<void>(s.streams.end_capture(s.origin));
  CHECK(contains(s.refused([&] { s.streams.wait(s.other, within); }), "a capture that ended"));
}

TEST_CASE("a capture that ends before its streams have joined is an error", "[kernels][emulator]") {
  TwoStreams s;
  int a[32] = {};
  s.streams.begin_capture(s.origin);
  s.streams.wait(s.other, s.streams.record(s.origin));
  s.streams.wait(s.origin, s.streams.record(s.other));
  add(s.other, a, 1);  // after the event for which the origin waits
  CHECK(contains(s.refused([&] { s.streams.end_capture(s.origin); }), "does not wait for"));
  CHECK_FALSE(s.streams.captures(s.origin));
  add(s.origin, a, 1);
  s.streams.synchronize(s.origin);
  CHECK(a[31] == 1);
}

TEST_CASE("captures do not nest, and end where they began", "[kernels][emulator]") {
  TwoStreams s;
  CHECK(contains(s.refused([&] { s.streams.end_capture(s.origin); }), "no capture began"));
  CHECK(contains(s.refused([&] { s.streams.begin_capture(nullptr); }), "default stream"));
  s.streams.begin_capture(s.origin);
  CHECK(contains(s.refused([&] { s.streams.begin_capture(s.other); }),
                 "another capture is in progress"));
  CHECK(contains(s.refused([&] { s.streams.end_capture(s.other); }), "no capture began"));
}

}  // namespace shale::kernels::emu
