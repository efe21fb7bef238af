// Runs kernels with races that the tracker must find. Each has a version without the race, which
// must pass.
#include "shale/kernels/simt/simt.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/emulator.h"

namespace shale::kernels::emu {
namespace {

struct Row {
  float of[128];
};
struct Counter {
  uint32_t value;
};

// Thread i stores a value that thread (i + distance) of its block reads. `first` is the barrier
// between the store and the read, `second` the one before the next round's store; false: it is
// missing.
__global__ void exchange(float* out, int distance, bool first, bool second) {
  float* row = shared<Row>().of;
  const int threads = blockDim.x;
  for (int round = 0; round < 2; ++round) {
    row[threadIdx.x] = float(threadIdx.x + round);
    if (first) __syncthreads();
    out[threadIdx.x] = row[(threadIdx.x + distance) % threads];
    if (second) __syncthreads();
  }
}

// Exchanges values as exchange() does, but within each warp.
__global__ void exchange_in_warp(float* out, bool first, bool second) {
  float* row = shared<Row>().of;
  const int lane = threadIdx.x % kWarpSize, base = threadIdx.x - lane;
  for (int round = 0; round < 2; ++round) {
    row[threadIdx.x] = float(threadIdx.x + round);
    if (first) __syncwarp();
    out[threadIdx.x] = row[base + (lane + 1) % kWarpSize];
    if (second) __syncwarp();
  }
}

// Warp 0 produces, warp 1 consumes, warp 2 is not involved. Then warp 0 writes again.
__global__ void named_barrier_handover(float* out, bool full, bool empty) {
  float* row = shared<Row>().of;
  const int lane = threadIdx.x % kWarpSize, warp = threadIdx.x / kWarpSize;
  if (warp == 0) {
    row[lane] = float(lane);
    if (full) barrier_arrive(1, 64);
    if (empty) barrier_sync(2, 64);
    row[lane] = 0;
  } else if (warp == 1) {
    if (full) barrier_sync(1, 64);
    out[lane] = row[31 - lane];
    if (empty) barrier_arrive(2, 64);
  }
}

__global__ void read_without_write(float* out) {
  if (threadIdx.x == 0) shared<Row>().of[0] = 1;
  __syncthreads();
  out[threadIdx.x] = shared<Row>().of[threadIdx.x];
}

// Thread 40 writes after the other threads have read. Without the barrier, this order is not
// guaranteed.
__global__ void write_after_broadcast(float* out, bool barrier) {
  float* row = shared<Row>().of;
  if (threadIdx.x == 0) row[0] = 1;
  __syncthreads();
  out[threadIdx.x] = row[0];
  if (barrier) __syncthreads();
  if (threadIdx.x == 40) row[0] = 2;
}

__global__ void count_with(uint32_t* out, bool atomically, bool barrier) {
  uint32_t* counter = &shared<Counter>().value;
  if (threadIdx.x == 0) *counter = 0;
  __syncthreads();
  if (atomically) {
    atomic_add(counter, 1);
  } else {
    *counter += 1;
  }
  if (barrier) __syncthreads();
  if (threadIdx.x == 0) *out = *counter;
}

__global__ void copy_in(const float* in, float* out, bool wait, bool barrier) {
  float* row = dynamic_shared<float>();
  cp_async<4>(row + threadIdx.x, in + threadIdx.x);
  cp_async_commit();
  if (wait) cp_async_wait<0>();
  if (barrier) __syncthreads();
  out[threadIdx.x] = row[blockDim.x - 1 - threadIdx.x];
  if (!wait) cp_async_wait<0>();
}

// Copies in two stages. If kNewest is 1, the stage that is read has arrived. If it is 2, the stage
// may still be in flight.
template <int kNewest>
__global__ void copy_two_stages(const float* in, float* out) {
  float* row = dynamic_shared<float>();
  for (int stage = 0; stage < 2; ++stage) {
    cp_async<4>(row + stage * blockDim.x + threadIdx.x, in + stage * blockDim.x + threadIdx.x);
    cp_async_commit();
  }
  cp_async_wait<kNewest>();
  __syncthreads();
  out[threadIdx.x] = row[threadIdx.x];
  cp_async_wait<0>();
}

__global__ void load_matrix_after(uint32_t* out, bool barrier) {
  auto* rows = dynamic_shared<uint32_t>();
  for (int i = 0; i < 2; ++i) rows[i * blockDim.x + threadIdx.x] = threadIdx.x;
  if (barrier) __syncthreads();
  uint32_t registers[1];
  const int warp = threadIdx.x / kWarpSize;
  ldmatrix<1>(registers, rows + (1 - warp) * 32 + threadIdx.x % 8 * 4);
  out[threadIdx.x] = registers[0];
}

// The compiler copies this struct by calling memcpy.
struct Large {
  float of[256];
};
__global__ void copy_struct(Large* out, bool barrier) {
  Large& large = shared<Large>();
  for (int i = threadIdx.x; i < 256; i += blockDim.x) large.of[i] = float(i);
  if (barrier) __syncthreads();
  if (threadIdx.x == 0) *out = large;
}

// The threads access a whole struct, then a single word, then the whole struct again. Thread 2
// reads either the whole struct, or the word beside the one that thread 1 wrote.
struct Whole {
  uint32_t of[64];
};
__global__ void part_of_whole(Whole* out, bool all, bool after_part, bool after_read,
                              bool after_whole) {
  Whole& whole = shared<Whole>();
  if (threadIdx.x == 0) whole = *out;
  __syncthreads();
  if (threadIdx.x == 1) whole.of[5] = 1;
  if (after_part) __syncthreads();
  if (threadIdx.x == 2 && all) *out = whole;
  if (threadIdx.x == 2 && !all) out->of[6] = whole.of[6];
  if (after_read) __syncthreads();
  if (threadIdx.x == 3) whole = *out;
  if (after_whole) __syncthreads();
  if (threadIdx.x == 4) out->of[5] = whole.of[5];
}

// Thread 2 of the first warp reads the whole struct between the write of a word and the other
// warp's read of that word.
__global__ void part_behind_whole(Whole* out, bool barrier) {
  Whole& whole = shared<Whole>();
  if (threadIdx.x == 0) whole = out[0];
  __syncthreads();
  if (threadIdx.x == 1) whole.of[5] = 1;
  __syncwarp();
  if (threadIdx.x == 2) out[0] = whole;
  if (barrier) __syncthreads();
  if (threadIdx.x == 40) out[1].of[5] = whole.of[5];
}

using emulator::Fault;

template <typename... Params, typename... Args>
test::FoundFault run(const emulator::Options& options, void (*kernel)(Params...), int threads,
                     Args... args) {
  return test::fault_of(options, [&](const Exec& exec) {
    simt::launch(kernel, {.grid = 1, .block = threads, .smem_bytes = 2048}, exec, args...);
  });
}

// Checks that the emulator finds the race in every order of threads: happens-before does not depend
// on timing.
template <typename... Params, typename... Args>
void expect(Fault fault, const char* text, void (*kernel)(Params...), int threads, Args... args) {
  if (!emulator::has_instrumented_kernels()) {
    WARN("skipped: this build's kernels are not instrumented");
    return;
  }
  for (const auto& options : test::emulator_orders()) {
    const auto found = run(options, kernel, threads, args...);
    CAPTURE(test::describe(options), found.message);
    CHECK((found.found && found.fault == fault));
    CHECK(test::contains(found.message, text));
  }
}

// Depending on the order of threads, a thread that reads too early reads uninitialized memory or
// races with the write.
template <typename... Params, typename... Args>
void expect_early_read(void (*kernel)(Params...), int threads, Args... args) {
  if (!emulator::has_instrumented_kernels()) {
    WARN("skipped: this build's kernels are not instrumented");
    return;
  }
  for (const auto& options : test::emulator_orders()) {
    const auto found = run(options, kernel, threads, args...);
    CAPTURE(test::describe(options), found.message);
    CHECK(found.found);
    CHECK((found.fault == Fault::kRace || found.fault == Fault::kUninitialised));
  }
}

template <typename... Params, typename... Args>
void expect_none(void (*kernel)(Params...), int threads, Args... args) {
  for (const auto& options : test::emulator_orders()) {
    const auto found = run(options, kernel, threads, args...);
    CAPTURE(test::describe(options), found.message);
    CHECK_FALSE(found.found);
  }
}

std::vector<float> g_in(256, 1.f), g_out(256);

}  // namespace

TEST_CASE("kernels of a release build are instrumented", "[kernels][emulator]") {
#if defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
  CHECK(emulator::has_instrumented_kernels());
#else
  WARN("skipped: built with a sanitizer or without the flag");
#endif
}

TEST_CASE("a missing __syncthreads is a race", "[kernels][emulator]") {
  float* out = g_out.data();
  expect_none(exchange, 128, out, 1, true, true);
  expect_none(exchange, 128, out, 33, true, true);
  expect_early_read(exchange, 128, out, 33, false, true);
  expect(Fault::kRace, "race: thread", exchange, 128, out, 33, true, false);
  expect(Fault::kRace, "race: thread", exchange, 128, out, 1, true, false);
  expect_none(write_after_broadcast, 128, out, true);
  expect(Fault::kRace, "thread 40 writes static shared object 1 (512 bytes) + 0",
         write_after_broadcast, 128, out, false);
}

TEST_CASE("a missing __syncwarp is a race", "[kernels][emulator]") {
  float* out = g_out.data();
  expect_none(exchange_in_warp, 128, out, true, true);
  expect_early_read(exchange_in_warp, 128, out, false, true);
  expect(Fault::kRace, "race: thread", exchange_in_warp, 128, out, true, false);
}

TEST_CASE("named barriers order those who meet there", "[kernels][emulator]") {
  float* out = g_out.data();
  expect_none(named_barrier_handover, 96, out, true, true);
  expect_early_read(named_barrier_handover, 96, out, false, true);
  expect(Fault::kRace, "race: thread", named_barrier_handover, 96, out, true, false);
}

TEST_CASE("a read of shared memory that nobody wrote is a fault", "[kernels][emulator]") {
  expect(Fault::kUninitialised, "which nobody has written", read_without_write, 64, g_out.data());
}

TEST_CASE("atomic operations race with plain ones only", "[kernels][emulator]") {
  uint32_t count = 0;
  expect_none(count_with, 128, &count, true, true);
  CHECK(count == 128);
  expect(Fault::kRace, "race: thread", count_with, 128, &count, false, true);
  expect(Fault::kRace, "race: thread", count_with, 128, &count, true, false);
}

TEST_CASE("shared memory may be read after cp_async_wait and a barrier", "[kernels][emulator]") {
  const float* in = g_in.data();
  float* out = g_out.data();
  expect_none(copy_in, 128, in, out, true, true);
  expect(Fault::kAsyncCopy, "still on its way", copy_in, 128, in, out, false, true);
  expect_none(copy_two_stages<1>, 128, in, out);
  expect(Fault::kAsyncCopy, "still on its way", copy_two_stages<2>, 128, in, out);
}

TEST_CASE("a wait for a cp.async and then a barrier precede the read", "[kernels][emulator]") {
  const bool wait = GENERATE(false, true);
  if (!emulator::has_instrumented_kernels()) {
    WARN("skipped: this build's kernels are not instrumented");
    return;
  }
  // In some orders the other thread's copy is not issued yet, in others it is in flight, or has
  // arrived without synchronization.
  for (const auto& options : test::emulator_orders()) {
    const auto found = run(options, copy_in, 128, g_in.data(), g_out.data(), wait, false);
    CAPTURE(test::describe(options), found.message);
    CHECK(found.found);
  }
}

TEST_CASE("primitives and copies of structs are tracked too", "[kernels][emulator]") {
  std::vector<uint32_t> words(64);
  expect_none(load_matrix_after, 64, words.data(), true);
  expect_early_read(load_matrix_after, 64, words.data(), false);
  Large large;
  expect_none(copy_struct, 128, &large, true);
  expect_early_read(copy_struct, 128, &large, false);
}

TEST_CASE("parts of what was accessed as a whole are told apart", "[kernels][emulator]") {
  Whole whole[2]{};
  expect_none(part_of_whole, 32, whole, true, true, true, true);
  expect_none(part_of_whole, 32, whole, false, false, true, true);
  expect(Fault::kRace, "+ 20", part_of_whole, 32, whole, true, false, true, true);
  expect(Fault::kRace, "+ 24", part_of_whole, 32, whole, false, true, false, true);
  expect(Fault::kRace, "+ 20", part_of_whole, 32, whole, true, true, true, false);
  expect_none(part_behind_whole, 64, whole, true);
  expect(Fault::kRace, "+ 20", part_behind_whole, 64, whole, false);
}

}  // namespace shale::kernels::emu
