// Runs kernels that misuse global memory: out-of-bounds accesses, reads of uninitialized memory,
// races between blocks. Each has a correct version, which must pass.
#include <numeric>

#include "shale/kernels/simt/hopper.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/emulator.h"
#include "shale/test/support/kernels.h"

namespace shale::kernels::emu {
namespace {

using emulator::Fault;
using test::DeviceArray;

constexpr int kCount = 64;  // elements of an array, and threads per block

struct Shared {
  alignas(128) float tile[kCount];
  MBarrier full;
};

// ---- Bounds ----

enum class By { kLoad, kStore, kPack, kAtomic, kCpAsync, kBulkLoad, kBulkStore, kBulkAdd, kBox };

struct Reach {
  By by;
  int at;         // element that thread 37 accesses first
  float* p;       // array of kCount elements
  TensorMap map;  // map of the array p
};

__global__ void reach_kernel(const __grid_constant__ Reach reach) {
  Shared& shared = *dynamic_shared<Shared>();
  if (threadIdx.x < 16) shared.tile[threadIdx.x] = 0;
  if (threadIdx.x == 0) mbarrier_init(shared.full, 1), fence_mbarrier_init();
  fence_proxy_async();
  __syncthreads();
  if (threadIdx.x != 37) return;
  float* const p = reach.p + reach.at;
  const auto land = [&] {
    mbarrier_arrive_expect(shared.full, 64);
    mbarrier_wait(shared.full, 0);
  };
  const auto store = [] {
    bulk_commit();
    bulk_wait<0>();
  };
  switch (reach.by) {
    case By::kLoad: shared.tile[37] = *p; break;
    case By::kStore: *p = 1; break;
    case By::kPack: store_floats(p, load_floats(p)); break;
    case By::kAtomic: atomic_add(p, 1.f); break;
    case By::kCpAsync: cp_async<16>(shared.tile, p), cp_async_commit(), cp_async_wait<0>(); break;
    case By::kBulkLoad: bulk_load(shared.tile, p, 64, shared.full), land(); break;
    case By::kBulkStore: bulk_store(p, shared.tile, 64), store(); break;
    case By::kBulkAdd: bulk_add(p, shared.tile, 64), store(); break;
    case By::kBox: tma_load(shared.tile, reach.map, shared.full, reach.at, 0), land(); break;
  }
}

TensorMap map_of(const float* p, int count) {
  return make_tensor_map({.data = p,
                          .dtype = DType::kF32,
                          .sizes = {count, 1},
                          .strides = {1, count},
                          .box = {16, 1},
                          .swizzle = false});
}

test::FoundFault reach(const emulator::Options& options, By by, int at, int claimed = kCount) {
  return test::fault_of(options, [&](const Exec& exec) {
    const DeviceArray<float> p(exec, std::vector<float>(kCount, 1.f));
    simt::launch(reach_kernel, {.grid = 1, .block = 64, .smem_bytes = sizeof(Shared)}, exec,
                 Reach{by, at, p.data(), map_of(p.data(), claimed)});
    test::synchronize_emulated(exec);
  });
}

void expect_outside(const emulator::Options& options, By by, int at, const char* text,
                    int claimed = kCount) {
  const auto found = reach(options, by, at, claimed);
  CAPTURE(test::describe(options), int(by), at, found.message);
  CHECK((found.found && found.fault == Fault::kOutOfBounds));
  CHECK(test::contains(found.message, text));
  CHECK(test::contains(found.message, " bytes of global memory at 0x"));
  CHECK(test::contains(found.message, "engine/global.cpp:"));
  CHECK(test::contains(found.message, "[block (0,0,0), thread (37,0,0)"));
}

// Constants are not in global memory, but kernels may read them.
constexpr float kConstants[] = {2, 3, 5, 7};

struct Arguments {
  float factor[8];
  const float* in;
  float* out;
};

__global__ void other_memory_kernel(const __grid_constant__ Arguments arguments, int shift) {
  float mine[4] = {};
  for (int i = 0; i < 4; ++i) mine[(i + shift) % 4] = kConstants[(threadIdx.x + i) % 4];
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  arguments.out[i] = arguments.factor[i % 8] * arguments.in[i] + mine[i % 4];
}

// A host variable, which a real GPU could not access.
float g_host = 0;
__global__ void host_variable_kernel(float* out) {
  out[threadIdx.x] = g_host;
}

__global__ void copy_kernel(const float* in, float* out) {
  out[threadIdx.x] = in[threadIdx.x];
}

// ---- Races between blocks ----

enum class Way {
  kOwnElements,
  kNeighbouringBytes,
  kAllRead,
  kAllAdd,
  kSameStore,
  kReadOfNeighbour,
  kStoreAndAdd,
  kReadAndAdd,
  kBulkStores,
};

__global__ void ways_kernel(Way way, float* p, uint8_t* bytes, float* out) {
  Shared& shared = *dynamic_shared<Shared>();
  const int thread = static_cast<int>(threadIdx.x), block = static_cast<int>(blockIdx.x);
  const int own = block * kCount / 2 + thread % (kCount / 2);
  const bool first = thread == 0;
  switch (way) {
    case Way::kOwnElements: p[own] = p[own] + 1; break;
    case Way::kNeighbouringBytes:
      if (thread < 8) bytes[2 * thread + block] = 1;
      break;
    case Way::kAllRead: out[own] = p[thread]; break;
    case Way::kAllAdd: atomic_add(&p[thread], 1.f); break;
    case Way::kSameStore:
      if (first) p[5] = 1;
      break;
    case Way::kReadOfNeighbour:
      p[own] = 1;
      if (first) out[block] = p[(own + kCount / 2) % kCount];
      break;
    case Way::kStoreAndAdd:
      if (first && block == 0) p[5] = 0;
      if (first) atomic_add(&p[5], 1.f);
      break;
    case Way::kReadAndAdd:
      if (first) out[block] = p[5];
      if (first) atomic_add(&p[5], 1.f);
      break;
    case Way::kBulkStores:
      shared.tile[thread] = 1;
      fence_proxy_async();
      __syncthreads();
      if (first) bulk_store(p + 4 * block, shared.tile, 64), bulk_commit(), bulk_wait<0>();
      break;
  }
}

test::FoundFault blocks_go(const emulator::Options& options, Way way) {
  return test::fault_of(options, [&](const Exec& exec) {
    const DeviceArray<float> p(exec, std::vector<float>(kCount, 0.f)), out(exec, kCount);
    const DeviceArray<uint8_t> bytes(exec, 16);
    // Launches twice: a launch must not conflict with an earlier one.
    for (int i = 0; i < 2; ++i) {
      simt::launch(ways_kernel, {.grid = 2, .block = kCount, .smem_bytes = sizeof(Shared)}, exec,
                   way, p.data(), bytes.data(), out.data());
    }
    test::synchronize_emulated(exec);
  });
}

// ---- Blocks that depend on each other ----

enum Missing { kNothing, kFenceBefore, kFenceAfter };

// The last block to finish sums the parts of all blocks.
__global__ void last_block_kernel(float* parts, uint32_t* tickets, float* sum, Missing missing) {
  struct Last {
    uint32_t ticket;
  };
  Last& last = shared<Last>();
  if (threadIdx.x < 4) parts[blockIdx.x * 4 + threadIdx.x] = float(blockIdx.x + 1);
  if (missing != kFenceBefore) __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) last.ticket = atomic_add(tickets, 1);
  __syncthreads();
  if (last.ticket != gridDim.x - 1) return;
  if (missing != kFenceAfter && threadIdx.x == 0) __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    for (unsigned i = 0; i < 4 * gridDim.x; ++i) *sum += parts[i];
  }
}

__global__ void lock_kernel(uint32_t* lock, int* value, Missing missing) {
  if (threadIdx.x != 0) return;
  for (int round = 0; round < 3; ++round) {
    while (atomic_cas(lock, 0, 1) != 0) {
    }
    if (missing != kFenceAfter) __threadfence();
    *value = *value + 1;
    if (missing != kFenceBefore) __threadfence();
    atomic_exchange(lock, 0);
  }
}

bool tracked() {
  if (emulator::has_instrumented_kernels()) return true;
  WARN("skipped: this build's kernels are not instrumented");
  return false;
}

template <typename Run>
void expect_race(Run&& run, const char* text) {
  for (const auto& options : test::emulator_orders()) {
    const auto found = run(options);
    CAPTURE(test::describe(options), found.message, text);
    CHECK((found.found && found.fault == Fault::kRace));
    CHECK(test::contains(found.message, text));
    CHECK(test::contains(found.message, "in the same launch, with nothing to order the two"));
  }
}

template <typename Run>
void expect_none(Run&& run) {
  for (const auto& options : test::emulator_orders()) {
    const auto found = run(options);
    CAPTURE(test::describe(options), found.message);
    CHECK_FALSE(found.found);
  }
}

}  // namespace

TEST_CASE("a primitive outside of global memory is a fault", "[kernels][emulator]") {
  for (emulator::Options options : test::emulator_orders()) {
    for (const bool track : {true, false}) {
      options.track = track;
      for (const By by : {By::kAtomic, By::kCpAsync, By::kBulkLoad, By::kBulkStore, By::kBulkAdd}) {
        const bool one = by == By::kAtomic;
        CHECK_FALSE(reach(options, by, one ? kCount - 1 : by == By::kCpAsync ? 60 : 48).found);
        expect_outside(options, by, kCount, "0 bytes behind the end of an allocation of 256 bytes");
        expect_outside(options, by, -4, "16 bytes before an allocation of 256 bytes");
        if (!one && by != By::kCpAsync) {
          expect_outside(options, by, 52, "208 bytes into an allocation of 256 bytes");
        }
      }
      // A box may extend beyond the array: elements outside are not read. If memory of the array
      // itself is not allocated, that is an error.
      CHECK_FALSE(reach(options, By::kBox, 60).found);
      expect_outside(options, By::kBox, 60, "240 bytes into an allocation of 256 bytes", 68);
    }
  }
}

TEST_CASE("a plain access outside of global memory is a fault", "[kernels][emulator]") {
  if (!tracked()) return;
  for (const auto& options : test::emulator_orders()) {
    for (const By by : {By::kLoad, By::kStore}) {
      CHECK_FALSE(reach(options, by, kCount - 1).found);
      expect_outside(options, by, kCount, "0 bytes behind the end of an allocation of 256 bytes");
      expect_outside(options, by, -1, "4 bytes before an allocation of 256 bytes");
    }
    expect_outside(options, By::kLoad, 1 << 28, "in no allocation");
    CHECK_FALSE(reach(options, By::kPack, 60).found);
    expect_outside(options, By::kPack, kCount, "0 bytes behind the end of an allocation");
  }
}

TEST_CASE("memory that was given back is a fault to touch", "[kernels][emulator]") {
  if (!tracked()) return;
  const auto found = test::fault_of({}, [](const Exec& exec) {
    const DeviceArray<float> out(exec, 32);
    const float* gone = nullptr;
    {
      const DeviceArray<float> in(exec, std::vector<float>(32, 1.f));
      gone = in.data();
    }
    simt::launch(copy_kernel, {.grid = 1, .block = 32}, exec, gone, out.data());
    test::synchronize_emulated(exec);
  });
  CAPTURE(found.message);
  CHECK((found.found && found.fault == Fault::kOutOfBounds));
}

TEST_CASE("arguments, constants and a thread's own variables are no global memory",
          "[kernels][emulator]") {
  expect_none([](const emulator::Options& options) {
    return test::fault_of(options, [](const Exec& exec) {
      const DeviceArray<float> in(exec, std::vector<float>(64, 1.f)), out(exec, 64);
      Arguments arguments{.factor = {}, .in = in.data(), .out = out.data()};
      std::iota(arguments.factor, arguments.factor + 8, 0.f);
      simt::launch(other_memory_kernel, {.grid = 2, .block = 32}, exec, arguments, 1);
      test::synchronize_emulated(exec);
    });
  });
}

TEST_CASE("a variable of the host is no memory of the device", "[kernels][emulator]") {
  if (!tracked()) return;
  const auto found = test::fault_of({}, [](const Exec& exec) {
    g_host = static_cast<float>(exec.threads);
    const DeviceArray<float> out(exec, 32);
    simt::launch(host_variable_kernel, {.grid = 1, .block = 32}, exec, out.data());
    test::synchronize_emulated(exec);
  });
  CAPTURE(found.message);
  CHECK((found.found && found.fault == Fault::kOutOfBounds));
  CHECK(test::contains(found.message, "in no allocation"));
}

TEST_CASE("a read of global memory that nobody wrote is a fault", "[kernels][emulator]") {
  if (!tracked()) return;
  const auto run = [](const emulator::Options& options, bool written) {
    return test::fault_of(options, [written](const Exec& exec) {
      const DeviceArray<float> first(exec, std::vector<float>(32, 1.f)), second(exec, 32),
          third(exec, 32);
      const simt::LaunchConfig warp = {.grid = 1, .block = 32};
      if (written) simt::launch(copy_kernel, warp, exec, first.data(), second.data());
      simt::launch(copy_kernel, warp, exec, second.data(), third.data());
      test::synchronize_emulated(exec);
    });
  };
  for (const auto& options : test::emulator_orders()) {
    CHECK_FALSE(run(options, true).found);
    const auto found = run(options, false);
    CAPTURE(found.message);
    CHECK((found.found && found.fault == Fault::kUninitialised));
    CHECK(test::contains(found.message, "this thread reads 4 bytes of global memory"));
    CHECK(test::contains(found.message, "which nobody has written"));
  }
}

TEST_CASE("blocks of a launch leave each other's global memory alone", "[kernels][emulator]") {
  if (!tracked()) return;
  for (const Way way : {Way::kOwnElements, Way::kNeighbouringBytes, Way::kAllRead, Way::kAllAdd}) {
    CAPTURE(int(way));
    expect_none([&](const emulator::Options& options) { return blocks_go(options, way); });
  }
  const auto expect = [](Way way, const char* text) {
    expect_race([&](const emulator::Options& options) { return blocks_go(options, way); }, text);
  };
  expect(Way::kSameStore, "20 bytes into an allocation of 256 bytes, which block (");
  expect(Way::kReadOfNeighbour, "which block (");
  expect(Way::kStoreAndAdd, "20 bytes into an allocation");
  expect(Way::kReadAndAdd, "20 bytes into an allocation");
  expect(Way::kBulkStores, "64 bytes of global memory");
}

// Launch numbers have 16 bits and repeat. Memory cells may still contain the number of an old
// launch, which a new launch may have again.
TEST_CASE("what a launch left is not taken for a later one of its number", "[kernels][emulator]") {
  if (!tracked()) return;
  const auto found = test::fault_of({}, [](const Exec& exec) {
    const DeviceArray<float> p(exec, std::vector<float>(kCount, 0.f)), out(exec, kCount);
    const DeviceArray<uint8_t> bytes(exec, 16);
    const auto go = [&](Way way) {
      simt::launch(ways_kernel, {.grid = 2, .block = kCount, .smem_bytes = sizeof(Shared)}, exec,
                   way, p.data(), bytes.data(), out.data());
      test::synchronize_emulated(exec);
    };
    emulator::GlobalMemory& memory = static_cast<emulator::Stream*>(exec.stream)->memory();
    const uint16_t number = memory.next_launch() + 1;
    go(Way::kAllAdd);
    while (memory.next_launch() != number - 1) {
    }
    go(Way::kOwnElements);
  });
  CAPTURE(found.message);
  CHECK_FALSE(found.found);
}

TEST_CASE("fences and an atomic counter order the last block after the others", "[kernels][emulator]") {
  if (!tracked()) return;
  constexpr int kBlocks = 5;
  const auto run = [](const emulator::Options& options, Missing missing) {
    return test::fault_of(options, [missing](const Exec& exec) {
      const DeviceArray<float> parts(exec, 4 * kBlocks), sum(exec, std::vector<float>{0});
      const DeviceArray<uint32_t> tickets(exec, std::vector<uint32_t>{0});
      simt::launch(last_block_kernel, {.grid = kBlocks, .block = 64}, exec, parts.data(),
                   tickets.data(), sum.data(), missing);
      test::synchronize_emulated(exec);
      CHECK(sum.download() == std::vector<float>{60});
    });
  };
  expect_none([&](const emulator::Options& options) { return run(options, kNothing); });
  for (const Missing missing : {kFenceBefore, kFenceAfter}) {
    expect_race([&](const emulator::Options& options) { return run(options, missing); },
                "this thread reads 4 bytes");
  }
}

TEST_CASE("a lock orders blocks if fences stand inside", "[kernels][emulator]") {
  if (!tracked()) return;
  const auto run = [](const emulator::Options& options, Missing missing) {
    return test::fault_of(options, [missing](const Exec& exec) {
      const DeviceArray<uint32_t> lock(exec, std::vector<uint32_t>{0});
      const DeviceArray<int32_t> value(exec, std::vector<int32_t>{0});
      simt::launch(lock_kernel, {.grid = 4, .block = 32}, exec, lock.data(), value.data(), missing);
      test::synchronize_emulated(exec);
      CHECK(value.download() == std::vector<int32_t>{12});
    });
  };
  expect_none([&](const emulator::Options& options) { return run(options, kNothing); });
  for (const Missing missing : {kFenceBefore, kFenceAfter}) {
    expect_race([&](const emulator::Options& options) { return run(options, missing); }, "block");
  }
}

}  // namespace shale::kernels::emu
