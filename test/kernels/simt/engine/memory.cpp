#include "shale/kernels/simt/simt.h"

#include <algorithm>

#include "shale/test/support/catch.h"
#include "shale/test/support/emulator.h"
#include "shale/test/support/numbers.h"

namespace shale::kernels::emu {
namespace {

// Copies an array in tiles through kStages stages of shared memory; the next tiles are loaded while
// one is written. The last tile is ragged: missing elements become zero.
template <int kBytes, int kStages>
__global__ void pipeline_kernel(const float* in, float* out, int n) {
  constexpr int kEach = kBytes / sizeof(float);
  float* stages = dynamic_shared<float>();
  const int tile = blockDim.x * kEach, mine = threadIdx.x * kEach;
  const int tiles = (n + tile - 1) / tile;
  const auto fetch = [&](int index) {
    const int at = index * tile + mine;
    if (index < tiles) {
      cp_async<kBytes>(stages + index % kStages * tile + mine, in + (at < n ? at : 0), at < n);
    }
    cp_async_commit();  // commits a group even without a copy, because waits count groups
  };
  for (int i = 0; i < kStages - 1; ++i) fetch(i);
  for (int i = 0; i < tiles; ++i) {
    cp_async_wait<kStages - 2>();
    __syncthreads();
    fetch(i + kStages - 1);
    // Reads another thread's elements, so that the barrier is needed.
    const float* stage = stages + i % kStages * tile;
    for (int e = 0; e < kEach; ++e) {
      const int element = (mine + kEach + e) % tile;
      out[i * tile + element] = stage[element];
    }
  }
}

template <typename T>
__global__ void pack_kernel(const T* in, T* out, float* widened, int n) {
  const int i = (blockIdx.x * blockDim.x + threadIdx.x) * kPackSize<T>;
  if (i + kPackSize < T >> n) return;
  const auto values = load_floats(in + i);
  for (int e = 0; e < kPackSize<T>; ++e) widened[i + e] = values.at[e];
  store_floats(out + i, values);
}

struct Atomics {
  float sum;
  uint32_t count, largest, tickets, modulo;
  int32_t signed_sum, signed_largest;
  uint64_t wide;
};

__global__ void atomics_kernel(Atomics* result, uint32_t* owner) {
  const auto i = blockIdx.x * blockDim.x + threadIdx.x;
  atomic_add(&result->sum, 0.5f);
  atomic_add(&result->count, 1);
  atomic_add(&result->wide, uint64_t{1} << 33);
  atomic_add(&result->signed_sum, -1);
  atomic_max(&result->largest, i);
  atomic_max(&result->signed_largest, -int(i) - 5);
  if (atomic_cas(owner, 0, i + 1) == 0) atomic_add(&result->tickets, 1);
  atomic_increment(&result->modulo, 6);
}

// Takes a lock by compare-and-swap. A thread that spins must let other threads run.
__global__ void lock_kernel(uint32_t* lock, int* value) {
  if (threadIdx.x % kWarpSize == 0) {
    while (atomic_cas(lock, 0, 1) != 0) {
    }
    __threadfence();
    *value = *value + 1;
    __threadfence();
    atomic_exchange(lock, 0);
  }
}

struct First {
  int of[32];
};
struct Second {
  int of[32];
};

__global__ void shared_objects_kernel(int* out) {
  int* dynamic = dynamic_shared<int>();
  shared<First>().of[threadIdx.x] = threadIdx.x;
  shared<Second>().of[threadIdx.x] = 100 + threadIdx.x;
  dynamic[threadIdx.x] = 200 + threadIdx.x;
  __syncthreads();
  const int other = blockDim.x - 1 - threadIdx.x;
  out[threadIdx.x] = shared<First>().of[other];
  out[32 + threadIdx.x] = shared<Second>().of[other];
  out[64 + threadIdx.x] = dynamic[other];
  const bool apart = shared_address(&shared<First>()) != shared_address(&shared<Second>());
  out[96 + threadIdx.x] = apart && shared_address(dynamic) % 1024 == 0;
}

__global__ void indices_kernel(int* out) {
  const auto block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const auto thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  const auto threads = blockDim.x * blockDim.y * blockDim.z;
  atomic_add(&out[block * threads + thread], 1);
}

using test::Emulator;

template <int kBytes, int kStages>
void check_pipeline(int n) {
  constexpr int kThreads = 64, kTile = kThreads * kBytes / 4;
  std::vector<float> in = test::randn<float>(n, 1);
  std::vector<float> want = in;
  want.resize(size_t((n + kTile - 1) / kTile * kTile), 0.f);
  for (const auto& options : test::emulator_orders()) {
    std::vector<float> out(want.size(), -1.f);
    Emulator emulator(options);
    simt::launch(pipeline_kernel<kBytes, kStages>,
                 {.grid = 1, .block = kThreads, .smem_bytes = sizeof(float) * kTile * kStages},
                 emulator.exec(), in.data(), out.data(), n);
    emulator.finish();
    CAPTURE(test::describe(options), n);
    CHECK(out == want);
  }
}

}  // namespace

TEST_CASE("cp.async feeds a pipeline of stages", "[kernels][emulator]") {
  check_pipeline<4, 2>(1000);
  check_pipeline<8, 3>(1000);
  check_pipeline<16, 4>(1024);
  check_pipeline<16, 3>(4);
}

TEMPLATE_TEST_CASE("packs are loaded, converted and stored", "[kernels][emulator]", float, bf16,
                   f16) {
  constexpr int kCount = 1024;
  const auto in = test::randn<TestType>(kCount, 1);
  std::vector<TestType> out(kCount);
  std::vector<float> widened(kCount);
  Emulator emulator;
  simt::launch(pack_kernel<TestType>, {.grid = 4, .block = 64}, emulator.exec(), in.data(),
               out.data(), widened.data(), kCount);
  emulator.finish();
  CHECK(test::same_bits(out, in));
  for (size_t i = 0; i < kCount; ++i) REQUIRE(widened[i] == to_f32(in[i]));
}

TEST_CASE("atomic operations lose nothing between threads and blocks", "[kernels][emulator]") {
  for (const auto& options : test::emulator_orders()) {
    Atomics result{};
    result.signed_largest = -1000000;
    uint32_t owner = 0;
    Emulator emulator(options);
    simt::launch(atomics_kernel, {.grid = 10, .block = 64}, emulator.exec(), &result, &owner);
    emulator.finish();
    CHECK(result.sum == 320);
    CHECK(result.count == 640);
    CHECK(result.wide == uint64_t{640} << 33);
    CHECK(result.signed_sum == -640);
    CHECK(result.largest == 639);
    CHECK(result.signed_largest == -5);
    CHECK(result.tickets == 1);
    CHECK(result.modulo == 640 % 7);
    CHECK((owner >= 1 && owner <= 640));
  }
}

TEST_CASE("a lock in global memory is handed on", "[kernels][emulator]") {
  for (const auto& options : test::emulator_orders()) {
    uint32_t lock = 0;
    int value = 0;
    Emulator emulator(options);
    simt::launch(lock_kernel, {.grid = 3, .block = 256}, emulator.exec(), &lock, &value);
    emulator.finish();
    CHECK(value == 24);
  }
}

TEST_CASE("each type has a shared object of its own", "[kernels][emulator]") {
  std::vector<int> out(128);
  Emulator emulator;
  simt::launch(shared_objects_kernel, {.grid = 1, .block = 32, .smem_bytes = 128}, emulator.exec(),
               out.data());
  emulator.finish();
  for (size_t i = 0; i < 32; ++i) {
    REQUIRE(out[i] == int(31 - i));
    REQUIRE(out[32 + i] == int(131 - i));
    REQUIRE(out[64 + i] == int(231 - i));
    REQUIRE(out[96 + i] == 1);
  }
}

TEST_CASE("every thread of every block runs once", "[kernels][emulator]") {
  const int threads = GENERATE(1, 3);
  for (const auto& options : test::emulator_orders()) {
    std::vector<int> out(3 * 4 * 5 * 2 * 3 * 4);
    Emulator emulator(options, threads);
    simt::launch(indices_kernel, {.grid = {3, 4, 5}, .block = {2, 3, 4}}, emulator.exec(),
                 out.data());
    emulator.finish();
    CHECK(std::all_of(out.begin(), out.end(), [](int count) { return count == 1; }));
  }
}

TEST_CASE("shared memory starts as NaN", "[kernels][emulator]") {
  // The tracker would report this read of uninitialized memory, so it is off.
  constexpr auto kernel = +[](float* out) { *out = dynamic_shared<float>()[0]; };
  float out = 0;
  Emulator emulator({.track = false});
  simt::launch(kernel, {.grid = 1, .block = 1, .smem_bytes = 4}, emulator.exec(), &out);
  emulator.finish();
  CHECK(std::isnan(out));
}

}  // namespace shale::kernels::emu
