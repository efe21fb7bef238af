// Runs kernels with one bug each. The emulator must find each bug under every order of threads, or,
// where noted, under some orders.
#include "shale/base/gpu_model.h"
#include "shale/kernels/dry_run.h"
#include "shale/kernels/simt/simt.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/emulator.h"

namespace shale::kernels::emu {
namespace {

struct Row {
  float of[128];
};

// ---- Barriers ----

__global__ void barrier_in_a_branch() {
  if (threadIdx.x < 32) __syncthreads();
}

__global__ void two_barriers_in_branches() {
  if (threadIdx.x < 32) {
    __syncthreads();
  } else {
    __syncthreads();
  }
}

__global__ void return_before_a_barrier(int active) {
  if (int(threadIdx.x) >= active) return;
  __syncthreads();
}

__global__ void named_barrier(int id, int threads) {
  barrier_sync(id, threads);
}

__global__ void named_barriers_that_disagree() {
  barrier_sync(1, threadIdx.x < 32 ? 64 : 128);
}

__global__ void part_of_a_warp_at_a_barrier() {
  if (threadIdx.x % 32 < 16) barrier_sync(1, 32);
}

__global__ void arrive_twice() {
  barrier_arrive(1, 64);
  barrier_arrive(1, 64);
}

__global__ void barriers_in_opposite_order() {
  const int first = threadIdx.x < 32 ? 1 : 2;
  barrier_sync(first, 64);
  barrier_sync(3 - first, 64);
}

__global__ void wait_for_a_flag_that_nobody_sets(uint32_t* flag) {
  if (threadIdx.x == 0) {
    while (atomic_add(flag, 0) == 0) {
    }
  }
}

// ---- Warp collectives ----

__global__ void shuffle_against_vote(float* out) {
  if (threadIdx.x < 16) {
    out[threadIdx.x] = shfl_xor(1.f, 1);
  } else {
    out[threadIdx.x] = float(ballot(true));
  }
}

__global__ void mask_without_the_caller(float* out) {
  out[threadIdx.x] = shfl_xor(1.f, 1, 0x0000ffffu);
}

__global__ void shuffle_after_lanes_left(float* out) {
  if (threadIdx.x >= 20) return;
  out[threadIdx.x] = warp_sum(1.f);
}

__global__ void shuffle_from_outside_the_mask(float* out) {
  if (threadIdx.x < 16) out[threadIdx.x] = shfl(1.f, 20, 0x0000ffffu);
}

__global__ void uniform_that_is_not(int32_t* out) {
  out[threadIdx.x] = uniform(int(threadIdx.x) / 24);
}

// ---- Shared memory ----

__global__ void store_to_the_other_memory(float* out, bool shared) {
  if (shared) {
    store_shared_floats(out, Floats<4>{});
  } else {
    store_floats(dynamic_shared<float>(), Floats<4>{});
  }
}

__global__ void write_behind_a_static_object(int index) {
  if (threadIdx.x == 0) shared<Row>().of[index] = 1;
}

__global__ void write_behind_the_dynamic_part(int index) {
  if (threadIdx.x == 0) dynamic_shared<float>()[index] = 1;
}

__global__ void misaligned_pack(float* out) {
  store_floats(out, load_floats(dynamic_shared<float>() + 1));
}

__global__ void ldmatrix_outside() {
  uint32_t registers[4];
  ldmatrix<4>(registers, dynamic_shared() + 256 + threadIdx.x % 32 * 16);
}

__global__ void misaligned_atomic(uint32_t* p) {
  atomic_add(reinterpret_cast<uint32_t*>(reinterpret_cast<char*>(p) + 2), 1);
}

__global__ void too_much_static_memory() {
  struct Large {
    float of[40000];
  };
  shared<Large>().of[0] = 1;
}

// ---- cp.async ----

__global__ void end_without_wait(const float* in) {
  cp_async<4>(dynamic_shared<float>() + threadIdx.x, in + threadIdx.x);
  cp_async_commit();
}

__global__ void wait_without_commit(const float* in) {
  cp_async<4>(dynamic_shared<float>() + threadIdx.x, in + threadIdx.x);
  cp_async_wait<0>();
}

__global__ void misaligned_copy(const float* in) {
  cp_async<16>(dynamic_shared<float>(), in + 1);
}

using emulator::Fault;

struct Expected {
  Fault fault;
  const char* text;  // part of the expected message
};

template <typename... Params, typename... Args>
void expect(const Expected& expected, void (*kernel)(Params...), const simt::LaunchConfig& config,
            Args... args) {
  for (const auto& options : test::emulator_orders()) {
    const auto found = test::fault_of(
        options, [&](const Exec& exec) { simt::launch(kernel, config, exec, args...); });
    CAPTURE(test::describe(options), found.message);
    CHECK((found.found && found.fault == expected.fault));
    CHECK(test::contains(found.message, expected.text));
    // The message names at least the launch's place in this file.
    CHECK(test::contains(found.message, "engine/faults.cpp:"));
  }
}

}  // namespace

TEST_CASE("threads at different barriers are a fault", "[kernels][emulator]") {
  expect({Fault::kDivergentBarrier, "threads 0-31 wait at __syncthreads"}, barrier_in_a_branch,
         {.grid = 1, .block = 64});
  expect({Fault::kDivergentBarrier, "divergent barrier"}, two_barriers_in_branches,
         {.grid = 1, .block = 64});
  expect({Fault::kDivergentBarrier, "threads 40-63 have ended"}, return_before_a_barrier,
         {.grid = 1, .block = 64}, 40);
}

TEST_CASE("misuse of a named barrier is a fault", "[kernels][emulator]") {
  expect({Fault::kBarrierMisuse, "expected a number from 1 to 15"}, named_barrier,
         {.grid = 1, .block = 64}, 16, 64);
  expect({Fault::kBarrierMisuse, "expected a number from 1 to 15"}, named_barrier,
         {.grid = 1, .block = 64}, 0, 64);
  expect({Fault::kBarrierMisuse, "expected whole warps"}, named_barrier, {.grid = 1, .block = 64},
         1, 48);
  expect({Fault::kBarrierMisuse, "expected whole warps"}, named_barrier, {.grid = 1, .block = 64},
         1, 0);
  expect({Fault::kBarrierMisuse, "at most 64 threads"}, named_barrier, {.grid = 1, .block = 64}, 1,
         96);
  expect({Fault::kBarrierMisuse, "said"}, named_barriers_that_disagree, {.grid = 1, .block = 128});
  expect({Fault::kBarrierMisuse, "16 lanes of warp"}, part_of_a_warp_at_a_barrier,
         {.grid = 1, .block = 64});
  expect({Fault::kBarrierMisuse, "has arrived already"}, arrive_twice, {.grid = 1, .block = 64});
}

TEST_CASE("a deadlock is reported with who waits where", "[kernels][emulator]") {
  expect({Fault::kDeadlock, "threads 0-31 wait at barrier_sync 1"}, barriers_in_opposite_order,
         {.grid = 1, .block = 64});
  uint32_t flag = 0;
  const auto found = test::fault_of({}, [&](const Exec& exec) {
    simt::launch(wait_for_a_flag_that_nobody_sets, {.grid = 1, .block = 32}, exec, &flag);
  });
  CHECK((found.found && found.fault == Fault::kDeadlock));
}

TEST_CASE("a divergent warp collective is a fault", "[kernels][emulator]") {
  std::vector<float> out(32);
  const simt::LaunchConfig warp = {.grid = 1, .block = 32};
  expect({Fault::kDivergentCollective, "different operations"}, shuffle_against_vote, warp,
         out.data());
  expect({Fault::kDivergentCollective, "does not contain the lane"}, mask_without_the_caller, warp,
         out.data());
  expect({Fault::kDivergentCollective, "a warp shuffle"}, shuffle_after_lanes_left, warp,
         out.data());
  expect({Fault::kDivergentCollective, "lane 20, which is not in mask 0x0000ffff"},
         shuffle_from_outside_the_mask, warp, out.data());
  std::vector<int32_t> integers(32);
  expect({Fault::kDivergentCollective, "uniform: the value is"}, uniform_that_is_not, warp,
         integers.data());
}

TEST_CASE("a primitive outside shared memory is a fault", "[kernels][emulator]") {
  expect({Fault::kOutOfBounds, "ldmatrix.x4 of 16 bytes"}, ldmatrix_outside,
         {.grid = 1, .block = 32, .smem_bytes = 256});
  expect({Fault::kLaunch, "static and dynamic shared memory need"}, too_much_static_memory,
         {.grid = 1, .block = 32, .smem_bytes = 100 << 10});
}

TEST_CASE("a pack that is stored to the other kind of memory is a fault", "[kernels][emulator]") {
  alignas(16) float out[4] = {};
  const simt::LaunchConfig thread = {.grid = 1, .block = 1, .smem_bytes = 16};
  expect({Fault::kOutOfBounds, "store_pack: the address is not one of global memory"},
         store_to_the_other_memory, thread, out, false);
  expect({Fault::kOutOfBounds, "store_shared_pack: the address is not one of shared memory"},
         store_to_the_other_memory, thread, out, true);
}

TEST_CASE("a store outside shared memory is a fault", "[kernels][emulator]") {
  if (!emulator::has_instrumented_kernels()) {
    WARN("skipped: a sanitizer finds it in this build, and ends the program");
    return;
  }
  expect({Fault::kOutOfBounds, "static shared object 1 (512 bytes) + 512"},
         write_behind_a_static_object, {.grid = 1, .block = 32}, 128);
  expect({Fault::kOutOfBounds, "dynamic shared memory (512 bytes) + 512"},
         write_behind_the_dynamic_part, {.grid = 1, .block = 32, .smem_bytes = 512}, 128);
  // Without the tracker, guard bytes detect the write.
  const auto found = test::fault_of({.track = false}, [](const Exec& exec) {
    simt::launch(write_behind_the_dynamic_part, {.grid = 1, .block = 32, .smem_bytes = 512}, exec,
                 129);
  });
  CAPTURE(found.message);
  CHECK((found.found && found.fault == Fault::kOutOfBounds));
  CHECK(test::contains(found.message, "dynamic shared memory (512 bytes) + 516"));
}

TEST_CASE("a misaligned access is a fault", "[kernels][emulator]") {
  alignas(16) float out[4] = {};
  uint32_t word[2] = {};
  const simt::LaunchConfig warp = {.grid = 1, .block = 32, .smem_bytes = 512};
  expect({Fault::kMisaligned, "load_pack"}, misaligned_pack, warp, out);
  expect({Fault::kMisaligned, "atomic_add"}, misaligned_atomic, warp, word);
  expect({Fault::kMisaligned, "cp.async of 16 bytes"}, misaligned_copy, warp, out);
}

TEST_CASE("a cp.async that is never waited for is a fault", "[kernels][emulator]") {
  std::vector<float> in(32);
  const simt::LaunchConfig warp = {.grid = 1, .block = 32, .smem_bytes = 128};
  expect({Fault::kAsyncCopy, "has not waited"}, end_without_wait, warp, in.data());
  expect({Fault::kAsyncCopy, "has not waited"}, wait_without_commit, warp, in.data());
}

TEST_CASE("a launch that the hardware would refuse throws at once", "[kernels][emulator]") {
  const auto refused = [](const simt::LaunchConfig& config) {
    const test::Emulator emulator;
    return test::message_of<emulator::KernelError>(
        [&] { simt::launch(barrier_in_a_branch, config, emulator.exec()); });
  };
  CHECK(test::contains(refused({.grid = 0, .block = 32}), "a grid of (0,1,1) blocks"));
  CHECK(test::contains(refused({.grid = {1, 65536}, .block = 32}), "a grid of (1,65536,1)"));
  CHECK(test::contains(refused({.grid = {1, 1, 65536}, .block = 32}), "a grid of (1,1,65536)"));
  CHECK(test::contains(refused({.grid = int64_t{1} << 31, .block = 32}),
                       "a grid of (2147483648,1,1) blocks"));
  CHECK(test::contains(refused({.grid = -1, .block = 32}), "a grid of (0,1,1) blocks"));
  CHECK(test::contains(refused({.grid = 1, .block = 1025}), "blocks of (1025,1,1) threads"));
  CHECK(test::contains(refused({.grid = 1, .block = 0}), "blocks of (0,1,1) threads"));
  CHECK(test::contains(refused({.grid = 1, .block = {32, 33}}), "blocks of (32,33,1) threads"));
  CHECK(test::contains(refused({.grid = 1, .block = {1, 1, 65}}), "blocks of (1,1,65) threads"));
  CHECK(test::contains(refused({.grid = 1, .block = 32, .smem_bytes = 228 << 10}),
                       "a block has 232448"));
}

TEST_CASE("no launch passes the limits of the GPU that is emulated", "[kernels][emulator]") {
  const auto refused = [](int arch, size_t kilobytes, bool dependent) {
    const kernels::DryRun nothing_runs;
    Exec exec{.device = {.type = DeviceType::kEmu, .arch = arch}};
    exec.dependent_launch = dependent;
    try {
      simt::launch(return_before_a_barrier, {.grid = 1, .block = 32, .smem_bytes = kilobytes << 10},
                   exec, 40);
    } catch (const emulator::KernelError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  for (const GpuModel& model : gpu_models()) {
    const size_t most = model.block_shared_bytes >> 10;
    CAPTURE(model.arch, most);
    CHECK(refused(model.arch, most, false).empty());
    CHECK(test::contains(refused(model.arch, most + 1, false),
                         cat("a block has ", model.block_shared_bytes)));
    CHECK(refused(model.arch, 1, true).empty() == (model.arch >= 90));
  }
  CHECK(test::contains(refused(86, 100, false), "a block has 101376"));
  CHECK(test::contains(refused(100, 228, false), "a block has 232448"));
}

// The emulator has the CUDA runtime's limit, which includes static objects. Their size is rounded
// up to a whole KiB, because dynamic shared memory starts at a KiB boundary.
TEST_CASE("shared memory above 48 KiB has to be asked for", "[kernels][emulator]") {
  const auto refused = [](size_t dynamic_bytes, bool asked) {
    return test::fault_of({}, [&](const Exec& exec) {
      emulator::launch(exec, {.blocks = {1, 1, 1},
                              .threads = {32, 1, 1},
                              .dynamic_bytes = dynamic_bytes,
                              .asked_for_shared = asked,
                              .site = simt::Site::current(),
                              .body = simt::KernelCall<int>{write_behind_a_static_object, {0}}});
    });
  };
  constexpr size_t kKilobyte = 1024;
  CHECK_FALSE(refused(47 * kKilobyte, false).found);
  CHECK_FALSE(refused(47 * kKilobyte + 1, true).found);
  CHECK_FALSE(refused(226 * kKilobyte, true).found);
  const auto check = [&](size_t bytes, bool asked, const char* text) {
    const auto found = refused(bytes, asked);
    CAPTURE(bytes, asked, found.message);
    CHECK((found.found && found.fault == Fault::kLaunch));
    CHECK(test::contains(found.message, text));
  };
  check(47 * kKilobyte + 1, false, "need 49153 bytes, a block has 49152 unless more is requested");
  check(48 * kKilobyte, false, "need 50176 bytes");
  check(49 * kKilobyte, false, "50176 bytes of shared memory, a block has 49152 unless");
  check(227 * kKilobyte, true, "need 233472 bytes, a block has 232448");
}

TEST_CASE("the first failing block is reported, whatever the number of threads",
          "[kernels][emulator]") {
  const auto message = [](int threads) {
    test::Emulator emulator({}, threads);
    simt::launch(return_before_a_barrier, {.grid = 20, .block = 64}, emulator.exec(), 40);
    return test::message_of<emulator::KernelError>([&] { emulator.finish(); });
  };
  CHECK(test::contains(message(1), "[block (0,0,0)"));
  CHECK(message(4) == message(1));
}

}  // namespace shale::kernels::emu
