#include "shale/kernels/simt/simt.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/emulator.h"

namespace shale::kernels::emu {
namespace {

__global__ void set_kernel(int* p, int value) {
  p[threadIdx.x] = value;
}
__global__ void copy_kernel(int* to, const int* from) {
  to[threadIdx.x] = from[threadIdx.x];
}

using emulator::Options;
using emulator::Stream;
using emulator::StreamSet;

Exec exec_on(Stream* stream) {
  return {.device = {.type = DeviceType::kEmu, .arch = 90}, .stream = stream, .threads = 1};
}
constexpr simt::LaunchConfig kWarp = {.grid = 1, .block = 32};

// A producer stream writes a buffer twice, and a consumer stream reads it after each write. If
// `full`, reads wait for the write. If `empty`, the second write waits for the first read.
int consume_after_produce(const Options& options, bool full, bool empty) {
  StreamSet streams(options);
  Stream *producer = streams.create(), *consumer = streams.create();
  int buffer[32] = {}, first[32] = {}, second[32] = {};
  simt::launch(set_kernel, kWarp, exec_on(producer), buffer, 1);
  if (full) streams.wait(consumer, streams.record(producer));
  simt::launch(copy_kernel, kWarp, exec_on(consumer), first, buffer);
  // Before the producer overwrites the buffer, the consumer must have read it.
  if (empty) streams.wait(producer, streams.record(consumer));
  simt::launch(set_kernel, kWarp, exec_on(producer), buffer, 2);
  if (full) streams.wait(consumer, streams.record(producer));
  simt::launch(copy_kernel, kWarp, exec_on(consumer), second, buffer);
  streams.synchronize(consumer);
  return first[31] * 10 + second[31];
}

// Returns the number of orders whose result differs from 12.
int visible(bool full, bool empty) {
  int count = 0;
  for (const Options& options : test::emulator_orders()) {
    count += consume_after_produce(options, full, empty) != 12;
  }
  return count;
}

}  // namespace

TEST_CASE("events order the work of two streams", "[kernels][emulator]") {
  CHECK(visible(true, true) == 0);
}

TEST_CASE("a missing event shows under some order", "[kernels][emulator]") {
  CHECK(visible(false, true) > 0);
  CHECK(visible(true, false) > 0);
}

TEST_CASE("arguments are taken by value when a kernel is launched", "[kernels][emulator]") {
  test::Emulator emulator;
  int out[32] = {};
  int value = 7;
  simt::launch(set_kernel, kWarp, emulator.exec(), out, value);
  value = 8;
  CHECK(out[0] == 0);  // the launch has not run yet
  emulator.finish();
  CHECK(out[0] == 7);
}

TEST_CASE("without a stream a kernel runs at once", "[kernels][emulator]") {
  int out[32] = {};
  simt::launch(set_kernel, kWarp, exec_on(nullptr), out, 7);
  CHECK(out[31] == 7);
}

TEST_CASE("asking for an event makes progress", "[kernels][emulator]") {
  for (const Options& options : test::emulator_orders()) {
    StreamSet streams(options);
    Stream *one = streams.create(), *other = streams.create();
    int out[32] = {}, elsewhere[32] = {};
    simt::launch(set_kernel, kWarp, exec_on(other), elsewhere, 1);
    simt::launch(set_kernel, kWarp, exec_on(one), out, 7);
    const auto event = streams.record(one);
    int asked = 0;
    while (!streams.done(*event) && asked < 100) ++asked;
    CHECK(asked < 100);
    CHECK(asked > 0);
    CHECK(out[0] == 7);
  }
}

TEST_CASE("an error stops the streams and is thrown by the next wait", "[kernels][emulator]") {
  test::Emulator emulator;
  int out[32] = {};
  constexpr auto kernel = +[](int* p) {
    if (threadIdx.x < 16) __syncthreads();
    *p = 1;
  };
  simt::launch(kernel, kWarp, emulator.exec(), out);
  simt::launch(set_kernel, kWarp, emulator.exec(), out, 7);
  CHECK_THROWS_AS(emulator.finish(), emulator::KernelError);
  CHECK(out[31] == 0);
  simt::launch(set_kernel, kWarp, emulator.exec(), out, 8);
  emulator.finish();
  CHECK(out[31] == 8);
}

TEST_CASE("work that waits for what is outside holds up only what is behind it in its queue",
          "[kernels][emulator]") {
  for (const int queues : {0, 1, 2, 3}) {
    StreamSet streams({.queues = queues});
    Stream *one = streams.create(), *other = streams.create();
    bool arrived = false, received = false, sent = false;
    one->enqueue_when([&] { return arrived; }, [&] { received = true; });
    other->enqueue([&] { sent = true; });
    while (one->advance()) {
    }
    CAPTURE(queues);
    CHECK(sent == (queues != 1));  // with one queue, the send waits behind the receive
    CHECK_FALSE(received);
    arrived = true;
    streams.synchronize(nullptr);
    CHECK((received && sent));
  }
}

}  // namespace shale::kernels::emu
