// Runs kernels that misuse Hopper's primitives, each with a correct version, which must pass. The
// emulator must find every mistake in every order of threads.
#include <cmath>

#include "shale/kernels/simt/hopper.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/emulator.h"

namespace shale::kernels::emu {
namespace {

using emulator::Fault;

constexpr int kTileBytes = 64 * 128;  // 64 lines of 64 16-bit elements

struct Barriers {
  MBarrier full, empty;
};

// A kernel's mistakes, as bits; 0 means that the kernel is correct.
enum Mistake : unsigned {
  kNone = 0,
  kNoInit = 1,
  kNoBarrierAfterInit = 2,
  kTooManyArrivals = 4,
  kExpectsMore = 8,
  kNoWait = 16,
  kOverwritesBarrier = 32,
  kArrivesEarly = 64,
  kNoProxyFence = 128,
  kNoReadWait = 256,
  kEarlyOverwrite = 512,
  kNoWgmmaFence = 1024,
  kWritesAccumulators = 2048,
  kChangesA = 4096,
  kReadsEarly = 8192,
  kFreesEarly = 16384,
  kNoFinalWait = 32768,
  kNoInitFence = 65536,
  kReadsA = 131072,
};

// ---- mbarriers and bulk loads: thread 0 loads rounds of 512 bytes, warps 1 to 3 read them ----

__global__ void ring_kernel(const float* in, float* out, unsigned mistakes) {
  Barriers& barriers = shared<Barriers>();
  float* const row = dynamic_shared<float>();
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == 0 && (mistakes & kNoInit) == 0) {
    mbarrier_init(barriers.full, 1);
    mbarrier_init(barriers.empty, 96);
    if ((mistakes & kNoInitFence) == 0) fence_mbarrier_init();
  }
  if ((mistakes & kNoBarrierAfterInit) == 0) __syncthreads();
  for (int round = 0; round < 3; ++round) {
    if (thread == 0) {
      mbarrier_wait(barriers.empty, round % 2 ^ 1);
      mbarrier_arrive_expect(barriers.full, (mistakes & kExpectsMore) != 0 ? 528 : 512);
      if ((mistakes & kTooManyArrivals) != 0) mbarrier_arrive(barriers.full);
      bulk_load(row, in + round * 128, 512, barriers.full);
      if ((mistakes & kOverwritesBarrier) != 0 && round == 0) barriers.full.state = 0;
    } else if (thread >= 32) {
      if ((mistakes & kNoWait) == 0) mbarrier_wait(barriers.full, round % 2);
      if ((mistakes & kArrivesEarly) != 0) mbarrier_arrive(barriers.empty);
      out[round * 128 + thread] = row[thread];
      if ((mistakes & kArrivesEarly) == 0) mbarrier_arrive(barriers.empty);
    }
  }
}

// ---- Bulk stores ----

__global__ void store_kernel(float* out, unsigned mistakes) {
  float* const row = dynamic_shared<float>();
  const int thread = static_cast<int>(threadIdx.x);
  for (int round = 0; round < 2; ++round) {
    row[thread] = float(round * 128 + thread);
    if ((mistakes & kNoProxyFence) == 0) fence_proxy_async();
    __syncthreads();
    if (thread == 0) {
      bulk_store(out + round * 128, row, 512);
      bulk_commit();
      if ((mistakes & kEarlyOverwrite) == 0 && (mistakes & kNoReadWait) == 0) bulk_wait_read<0>();
    }
    __syncthreads();
    if ((mistakes & kNoReadWait) != 0) return;
  }
  if (thread == 0) bulk_wait<0>();
}

// ---- wgmma: a tile of ones times one of twos, both written by threads ----

__global__ void product_kernel(float* out, unsigned mistakes) {
  auto* const a = dynamic_shared<uint32_t>();
  auto* const b = a + kTileBytes / 4;
  const int thread = static_cast<int>(threadIdx.x);
  const uint32_t one = pack_pair<bf16>(1, 1), two = pack_pair<bf16>(2, 2);
  for (int i = thread; i < kTileBytes / 4; i += 128) {
    a[i] = one;
    b[i] = two;
  }
  if ((mistakes & kNoProxyFence) == 0) fence_proxy_async();
  __syncthreads();
  float d[32];
  uint32_t registers[4] = {one, one, one, one};
  if ((mistakes & kNoWgmmaFence) == 0) wgmma_fence(d);
  wgmma<bf16, 64>(d, k_major(a, 0), k_major(b, 0), false);
  wgmma<bf16, 64>(d, registers, k_major(b, 16), true);
  wgmma_commit();
  if ((mistakes & kWritesAccumulators) != 0) d[3] = 1;
  if ((mistakes & kChangesA) != 0 && thread == 77) registers[1] = two;
  if ((mistakes & kFreesEarly) != 0) b[thread] = one;
  const float early = (mistakes & kReadsEarly) != 0 ? d[5] : 0;
  const uint32_t held = (mistakes & kReadsA) != 0 ? registers[2] : one;
  if ((mistakes & kNoFinalWait) == 0) wgmma_wait<0>(d);
  if ((mistakes & (kFreesEarly | kNoFinalWait)) == 0) b[thread] = one;
  if ((mistakes & kNoFinalWait) != 0) return;
  out[thread] = (mistakes & kReadsEarly) != 0 ? early : held == one ? d[5] : 0;
}

__global__ void half_a_warpgroup_kernel() {
  float d[4];
  if (threadIdx.x >= 64) return;
  wgmma_fence(d);
  wgmma<bf16, 8>(d, k_major(dynamic_shared(), 0), k_major(dynamic_shared(), 0), false);
  wgmma_commit();
  wgmma_wait<0>(d);
}

__global__ void tile_between_multiples_kernel() {
  float d[4];
  wgmma_fence(d);
  wgmma<bf16, 8>(d, k_major(dynamic_shared() + 512, 0), k_major(dynamic_shared(), 0), false);
}

__global__ void operand_outside_kernel() {
  float d[4];
  for (int i = static_cast<int>(threadIdx.x); i < 256; i += 128) dynamic_shared<float>()[i] = 1;
  fence_proxy_async();
  __syncthreads();
  wgmma_fence(d);
  wgmma<bf16, 8>(d, k_major(dynamic_shared() + 1024, 0), k_major(dynamic_shared(), 0), false);
}

// How the kernel changes register counts. Its 384 threads start with 168 registers each.
enum class Registers { kFit, kTooMany, kNobodyShrinks, kShrinkToMore, kGrowToFewer, kOneWarp };
__global__ void registers_kernel(Registers how) {
  if (threadIdx.x < 128) {
    if (how == Registers::kOneWarp && threadIdx.x >= 32) return;
    if (how == Registers::kShrinkToMore) shrink_registers<176>();
    if (how != Registers::kNobodyShrinks) shrink_registers<40>();
  } else if (how == Registers::kTooMany) {
    grow_registers<240>();
  } else if (how == Registers::kGrowToFewer) {
    grow_registers<160>();
  } else if (how != Registers::kOneWarp) {
    grow_registers<232>();
  }
}
__global__ void no_warpgroup_kernel() {
  shrink_registers<40>();
}

__global__ void misplaced_box_kernel(const __grid_constant__ TensorMap map, int offset) {
  Barriers& barriers = shared<Barriers>();
  if (threadIdx.x > 0) return;
  mbarrier_init(barriers.full, 1);
  fence_mbarrier_init();
  mbarrier_arrive_expect(barriers.full, 128);
  tma_load(dynamic_shared() + offset, map, barriers.full, 0, 0);
  mbarrier_wait(barriers.full, 0);
}

__global__ void end_before_landing_kernel(const float* in) {
  Barriers& barriers = shared<Barriers>();
  if (threadIdx.x > 0) return;
  mbarrier_init(barriers.full, 1);
  fence_mbarrier_init();
  mbarrier_arrive_expect(barriers.full, 512);
  bulk_load(dynamic_shared(), in, 512, barriers.full);
}

__global__ void prefetch_kernel(const __grid_constant__ TensorMap map) {
  if (threadIdx.x == 0) prefetch_tensor_map(map);
}

// Has two wgmma groups in flight. Once the first group is done, its operand may be overwritten, but
// the operand of the second may not.
__global__ void two_groups_kernel(float* out, bool frees_second) {
  auto* const tiles = dynamic_shared<uint32_t>();
  const int thread = static_cast<int>(threadIdx.x);
  for (int i = thread; i < 2 * kTileBytes / 4; i += 128) tiles[i] = pack_pair<bf16>(1, 2);
  fence_proxy_async();
  __syncthreads();
  auto* const second = tiles + kTileBytes / 4;
  float d[32], e[32];
  wgmma_fence(d, e);
  wgmma<bf16, 64>(d, mn_major(tiles, 0, kTileBytes), k_major(tiles, 0), false);
  wgmma_commit();
  wgmma_fence(d, e);
  wgmma<bf16, 64>(e, k_major(second, 0), k_major(second, 16), false);
  wgmma_commit();
  wgmma_wait<1>(d);
  (frees_second ? second : tiles)[thread] = 0;
  out[thread] = d[0];
  wgmma_wait<0>(e);
  out[thread] += e[0];
}

// ---- Running the kernels ----

template <typename... Params, typename... Args>
test::FoundFault run(const emulator::Options& options, void (*kernel)(Params...), int threads,
                     Args... args) {
  return test::fault_of(options, [&](const Exec& exec) {
    simt::launch(kernel, {.grid = 1, .block = threads, .smem_bytes = 2 * kTileBytes}, exec,
                 args...);
  });
}

template <typename... Params, typename... Args>
void expect(std::initializer_list<Fault> faults, const char* text, void (*kernel)(Params...),
            int threads, Args... args) {
  for (const auto& options : test::emulator_orders()) {
    const auto found = run(options, kernel, threads, args...);
    CAPTURE(text, test::describe(options), found.message);
    CHECK((found.found && std::ranges::count(faults, found.fault) == 1));
    CHECK(test::contains(found.message, text));
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

// Returns true if the build has the tracker, without which some mistakes cannot be found. Otherwise
// warns and returns false.
bool tracked() {
  if (emulator::has_instrumented_kernels()) return true;
  WARN("skipped: this build's kernels are not instrumented");
  return false;
}

std::vector<float> counted(size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = float(i);
  return values;
}

}  // namespace

TEST_CASE("a ring of one stage passes its rounds on under every order", "[kernels][emulator]") {
  const std::vector<float> in = counted(384);
  std::vector<float> out(384);
  expect_none(ring_kernel, 128, in.data(), out.data(), unsigned{kNone});
  for (size_t i = 0; i < in.size(); ++i) {
    if (i % 128 >= 32) REQUIRE(out[i] == in[i]);
  }
}

TEST_CASE("misused mbarriers are found", "[kernels][emulator]") {
  const std::vector<float> in = counted(384);
  std::vector<float> out(384);
  const auto ring = [&](std::initializer_list<Fault> faults, const char* text, Mistake mistake) {
    expect(faults, text, ring_kernel, 128, in.data(), out.data(), unsigned{mistake});
  };
  ring({Fault::kBarrierMisuse}, "was not initialised", kNoInit);
  ring({Fault::kBarrierMisuse}, "more arrivals than the phase expects: the mbarrier at static",
       kTooManyArrivals);
  ring({Fault::kDeadlock}, "lacks 0 of 1 arrivals and 16 bytes", kExpectsMore);
  ring({Fault::kBarrierMisuse, Fault::kRace}, "static shared object 1 (16 bytes) + 0",
       kOverwritesBarrier);
  ring({Fault::kProxyFence}, "no fence_mbarrier_init() has followed", kNoInitFence);
  if (!tracked()) return;
  ring({Fault::kRace, Fault::kBarrierMisuse}, "static shared object", kNoBarrierAfterInit);
}

TEST_CASE("shared memory is used only between a bulk copy and the next", "[kernels][emulator]") {
  const std::vector<float> in = counted(384);
  std::vector<float> out(384);
  if (!tracked()) return;
  // A thread that does not wait finds unwritten memory, a pending copy, or a copy that just
  // arrived.
  expect({Fault::kUninitialised, Fault::kAsyncCopy, Fault::kRace}, "thread", ring_kernel, 128,
         in.data(), out.data(), unsigned{kNoWait});
  // A thread that signals too early that it has read conflicts with the next copy.
  expect({Fault::kAsyncCopy, Fault::kRace}, "a bulk copy for mbarrier 0", ring_kernel, 128,
         in.data(), out.data(), unsigned{kArrivesEarly});
}

TEST_CASE("a block may not end before its bulk copies have landed", "[kernels][emulator]") {
  const std::vector<float> in = counted(128);
  expect({Fault::kAsyncCopy}, "before its bulk copies are complete", end_before_landing_kernel, 32,
         in.data());
}

TEST_CASE("only tensor maps that were made are prefetched", "[kernels][emulator]") {
  const std::vector<float> in = counted(64);
  const TensorMap made = make_tensor_map({.data = in.data(),
                                          .dtype = DType::kF32,
                                          .sizes = {64, 1},
                                          .strides = {1, 64},
                                          .box = {32, 1}});
  expect_none(prefetch_kernel, 32, made);
  expect({Fault::kAsyncCopy}, "prefetch_tensor_map: the tensor map was not encoded",
         prefetch_kernel, 32, TensorMap());
}

TEST_CASE("bulk stores read what was written and fenced, until they are waited for",
          "[kernels][emulator]") {
  std::vector<float> out(256);
  expect_none(store_kernel, 128, out.data(), unsigned{kNone});
  CHECK(out == counted(256));
  expect({Fault::kAsyncCopy}, "ends with bulk stores", store_kernel, 128, out.data(),
         unsigned{kNoReadWait});
  if (!tracked()) return;
  expect({Fault::kProxyFence}, "without a fence_proxy_async()", store_kernel, 128, out.data(),
         unsigned{kNoProxyFence});
  expect({Fault::kRace}, "which a bulk store of thread 0 read", store_kernel, 128, out.data(),
         unsigned{kEarlyOverwrite});
}

TEST_CASE("wgmma's registers are left alone until the wait", "[kernels][emulator]") {
  std::vector<float> out(128);
  expect_none(product_kernel, 128, out.data(), unsigned{kNone});
  for (const float x : out) REQUIRE(x == 64);  // a sum of 32 terms 1 * 2
  const auto product = [&](Fault fault, const char* text, Mistake mistake) {
    expect({fault}, text, product_kernel, 128, out.data(), unsigned{mistake});
  };
  product(Fault::kWgmma, "no wgmma_fence()", kNoWgmmaFence);
  product(Fault::kWgmma, "ends with wgmma", kNoFinalWait);
  if (!tracked()) return;
  product(Fault::kWgmma, "writes 4 bytes of accumulators before their wgmma_wait()",
          kWritesAccumulators);
  product(Fault::kWgmma, "reads 4 bytes of accumulators before their wgmma_wait()", kReadsEarly);
  product(Fault::kWgmma, "writes 4 bytes of a's registers before their wgmma_wait()", kChangesA);
  product(Fault::kWgmma, "reads 4 bytes of a's registers before their wgmma_wait()", kReadsA);
}

// Without the tracker, the emulator still checks registers of wgmma when a thread waits for it.
TEST_CASE("without the tracker wgmma's registers are looked at in the wait",
          "[kernels][emulator]") {
  std::vector<float> out(128);
  for (emulator::Options options : test::emulator_orders()) {
    options.track = false;
    const auto found = [&](Mistake mistake) {
      return run(options, product_kernel, 128, out.data(), unsigned{mistake}).message;
    };
    CHECK(test::contains(found(kWritesAccumulators), "accumulators were written before"));
    CHECK(test::contains(found(kChangesA), "registers of a were changed before"));
    CHECK(found(kReadsEarly).empty());
    for (const float x : out) REQUIRE(std::isnan(x));
  }
}

TEST_CASE("a box lies at a multiple of what its swizzle needs", "[kernels][emulator]") {
  const std::vector<float> in = counted(64);
  for (const bool swizzle : {false, true}) {
    const TensorMap map = make_tensor_map({.data = in.data(),
                                           .dtype = DType::kF32,
                                           .sizes = {64, 1},
                                           .strides = {1, 64},
                                           .box = {32, 1},
                                           .swizzle = swizzle});
    expect_none(misplaced_box_kernel, 32, map, 1024);
    expect({Fault::kMisaligned}, swizzle ? "a multiple of 1024" : "a multiple of 128",
           misplaced_box_kernel, 32, map, swizzle ? 512 : 64);
  }
}

TEST_CASE("wgmma's operands are fenced, and left alone until the wait", "[kernels][emulator]") {
  std::vector<float> out(128);
  expect({Fault::kWgmma}, "fewer than 128 threads", half_a_warpgroup_kernel, 64);
  expect({Fault::kWgmma}, "a at dynamic shared memory (16384 bytes) + 512 is not a tile",
         tile_between_multiples_kernel, 128);
  if (!tracked()) return;
  expect({Fault::kUninitialised}, "a wgmma of warpgroup 0 reads", operand_outside_kernel, 128);
  expect({Fault::kProxyFence}, "wrote without a fence_proxy_async()", product_kernel, 128,
         out.data(), unsigned{kNoProxyFence});
  expect({Fault::kRace}, "which a wgmma of warpgroup 0 read", product_kernel, 128, out.data(),
         unsigned{kFreesEarly});
  expect_none(two_groups_kernel, 128, out.data(), false);
  expect({Fault::kRace}, "which a wgmma of warpgroup 0 read", two_groups_kernel, 128, out.data(),
         true);
}

TEST_CASE("a warpgroup takes the registers that another has given back", "[kernels][emulator]") {
  expect_none(registers_kernel, 384, Registers::kFit);
  expect({Fault::kDeadlock}, "wait at grow_registers", registers_kernel, 384, Registers::kTooMany);
  expect({Fault::kDeadlock}, "for 64 more registers a thread, 0 are free in the block",
         registers_kernel, 384, Registers::kNobodyShrinks);
  expect({Fault::kRegisters}, "shrink_registers: asks for 176 registers, but the thread has 168",
         registers_kernel, 384, Registers::kShrinkToMore);
  expect({Fault::kRegisters}, "grow_registers: asks for 160 registers, but the thread has 168",
         registers_kernel, 384, Registers::kGrowToFewer);
  expect({Fault::kRegisters}, "end with different numbers of registers", registers_kernel, 384,
         Registers::kOneWarp);
  expect({Fault::kRegisters}, "the warpgroup has fewer than 128 threads", no_warpgroup_kernel, 96);
}

}  // namespace shale::kernels::emu
