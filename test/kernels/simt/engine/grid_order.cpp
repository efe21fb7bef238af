// Tests dependent launches (PDL). A grid that has not waited for the previous grid may do only
// certain things. The emulator must find all others.
#include <algorithm>
#include <vector>

#include "shale/kernels/simt/engine/fault.h"
#include "shale/kernels/simt/hopper.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/emulator.h"

namespace shale::kernels::emu {
namespace {

constexpr int kThreads = 64, kBlocks = 3;
constexpr int kRun = 64;  // bytes of a bulk copy

// What a thread does too early, before it has waited for the previous grid.
enum class Early {
  kNothing,
  kLoad,
  kPack,
  kStore,
  kAtomic,
  kCpAsync,
  kTmaLoad,
  kBulkLoad,
  kBulkStore,
  kBulkAdd,
  kNeverWaits,
};

struct Operands {
  Early early;
  int culprit;      // thread that accesses too early
  float scale[40];  // large enough for a memcpy
  TensorMap map;    // map of `in`, in boxes of kRun bytes
  const float* in;
  float* out;
  uint32_t* count;
};

struct Shared {
  alignas(128) float tile[kRun / sizeof(float)];
  float scales[kThreads];
  MBarrier full;
};

// Makes the early access and returns the value read, if any.
__device__ float touch(const Operands& o, Shared& shared) {
  const auto wait_for_tile = [&] {
    mbarrier_arrive_expect(shared.full, kRun);
    mbarrier_wait(shared.full, 0);
  };
  const auto wait_for_store = [] {
    bulk_commit();
    bulk_wait<0>();
  };
  switch (o.early) {
    case Early::kNothing:
    case Early::kNeverWaits: break;
    case Early::kLoad: return o.in[0];
    case Early::kPack: return load_pack(o.in).at[0];
    case Early::kStore: o.out[0] = 1; break;
    case Early::kAtomic: atomic_add(o.count, 1u); break;
    case Early::kCpAsync:
      cp_async<16>(shared.tile, o.in);
      cp_async_commit();
      cp_async_wait<0>();
      break;
    case Early::kTmaLoad:
      tma_load(shared.tile, o.map, shared.full, 0, 0);
      wait_for_tile();
      break;
    case Early::kBulkLoad:
      bulk_load(shared.tile, o.in, kRun, shared.full);
      wait_for_tile();
      break;
    case Early::kBulkStore:
      bulk_store(o.out, shared.tile, kRun);
      wait_for_store();
      break;
    case Early::kBulkAdd:
      bulk_add(o.out, shared.tile, kRun);
      wait_for_store();
      break;
  }
  return 0;
}

// Computes out[i] = scale[1] * in[i]. All accesses before the wait are allowed, except those of
// thread `culprit`.
__global__ void scale_kernel(const __grid_constant__ Operands o) {
  Shared& shared = *dynamic_shared<Shared>();
  const int thread = static_cast<int>(threadIdx.x);
  const int i = static_cast<int>(blockIdx.x * blockDim.x) + thread;
  const bool is_culprit = blockIdx.x == gridDim.x - 1 && thread == o.culprit;
  prefetch_l2(o.in + i);
  prefetch_tensor_map(o.map);
  shared.scales[thread] = o.scale[thread % 2];
  if (thread < kRun / int(sizeof(float))) shared.tile[thread] = 0;
  if (thread == 0) {
    mbarrier_init(shared.full, 1);
    fence_mbarrier_init();
  }
  fence_proxy_async();
  __syncthreads();
  const float scale = shared.scales[thread | 1] + shfl(0.f, 0);
  const float read = is_culprit ? touch(o, shared) : 0;
  __syncthreads();
  if (is_culprit && o.early == Early::kNeverWaits) return;
  await_previous_grid();
  o.out[i] = scale * o.in[i] + 0 * read;
}

using emulator::Fault;

struct Arrays {
  std::vector<float> in = std::vector<float>(kBlocks * kThreads, 3);
  alignas(16) float out[kBlocks * kThreads] = {};
  uint32_t count = 0;

  Operands operands(Early early) {
    Operands o{.early = early, .culprit = 37, .in = in.data(), .out = out, .count = &count};
    o.scale[1] = 2;
    o.map = make_tensor_map({.data = in.data(),
                             .dtype = DType::kF32,
                             .dims = 2,
                             .sizes = {kThreads, kBlocks},
                             .strides = {1, kThreads},
                             .box = {kRun / int(sizeof(float)), 1},
                             .swizzle = false});
    return o;
  }
  bool right() const {
    return std::all_of(std::begin(out), std::end(out), [](float x) { return x == 6; });
  }
};

Exec dependent(Exec exec) {
  exec.dependent_launch = true;
  return exec;
}

test::FoundFault run(const emulator::Options& options, Arrays& arrays, Early early,
                     bool is_dependent = true) {
  return test::fault_of(options, [&](const Exec& exec) {
    simt::launch(scale_kernel, {.grid = kBlocks, .block = kThreads, .smem_bytes = sizeof(Shared)},
                 is_dependent ? dependent(exec) : exec, arrays.operands(early));
  });
}

void expect(const emulator::Options& options, Early early, const char* text) {
  Arrays arrays;
  const auto found = run(options, arrays, early);
  CAPTURE(text, test::describe(options), options.track, found.message);
  CHECK((found.found && found.fault == Fault::kGridOrder));
  CHECK(test::contains(found.message, text));
  CHECK(test::contains(found.message, "engine/grid_order.cpp:"));
  CHECK(test::contains(found.message, "[block (2,0,0), thread (37,0,0)"));
  // Without a dependent launch the same grid is correct.
  CHECK_FALSE(run(options, arrays, early, /*is_dependent=*/false).found);
}

}  // namespace

TEST_CASE("a dependent grid may prepare itself before its wait", "[kernels][emulator]") {
  for (const auto& options : test::emulator_orders()) {
    Arrays arrays;
    const auto found = run(options, arrays, Early::kNothing);
    CAPTURE(test::describe(options), found.message);
    CHECK_FALSE(found.found);
    CHECK(arrays.right());
  }
}

TEST_CASE("a plain access to global memory before the wait is a fault", "[kernels][emulator]") {
  if (!emulator::has_instrumented_kernels()) {
    WARN("skipped: kernels are not instrumented in this build");
    return;
  }
  for (const auto& options : test::emulator_orders()) {
    expect(options, Early::kLoad, "reads 4 bytes of global memory before await_previous_grid()");
    expect(options, Early::kStore, "writes 4 bytes of global memory");
    expect(options, Early::kPack, "at or after load_pack");
  }
}

TEST_CASE("a primitive at global memory before the wait is a fault", "[kernels][emulator]") {
  for (const bool track : {true, false}) {
    for (emulator::Options options : test::emulator_orders()) {
      options.track = track;
      expect(options, Early::kAtomic, "changes atomically a place in global memory");
      expect(options, Early::kCpAsync, "starts a cp.async from global memory");
      expect(options, Early::kTmaLoad, "at or after tma_load");
      expect(options, Early::kBulkLoad, "at or after bulk_load");
      expect(options, Early::kBulkStore, "at or after bulk_store");
      expect(options, Early::kBulkAdd, "at or after bulk_add");
    }
  }
}

TEST_CASE("a dependent grid of which a thread does not wait is a fault", "[kernels][emulator]") {
  for (const bool track : {true, false}) {
    for (emulator::Options options : test::emulator_orders()) {
      options.track = track;
      expect(options, Early::kNeverWaits, "the thread ends without await_previous_grid()");
    }
  }
}

TEST_CASE("a recorded launch stays dependent", "[kernels][emulator]") {
  emulator::StreamSet streams{emulator::Options{}};
  emulator::Stream* const stream = streams.create();
  Exec exec{.device = {.type = DeviceType::kEmu, .arch = 90}, .stream = stream};
  Arrays arrays;
  streams.begin_capture(stream);
  simt::launch(scale_kernel, {.grid = kBlocks, .block = kThreads, .smem_bytes = sizeof(Shared)},
               dependent(exec), arrays.operands(Early::kNeverWaits));
  const auto recording = streams.end_capture(stream);
  recording->replay(*stream);
  CHECK(
      test::contains(test::message_of<emulator::KernelError>([&] { streams.synchronize(stream); }),
                     "the thread ends without await_previous_grid()"));
}

TEST_CASE("an A100 takes no dependent launch", "[kernels][emulator]") {
  const test::Emulator emulator;
  Exec exec = dependent(emulator.exec());
  exec.device.arch = 80;
  Arrays arrays;
  const std::string message = test::message_of<emulator::KernelError>([&] {
    simt::launch(scale_kernel, {.grid = 1, .block = kThreads, .smem_bytes = sizeof(Shared)}, exec,
                 arrays.operands(Early::kNothing));
  });
  CHECK(test::contains(message, "compute capability 8.0, expected 9.0 or later"));
}

}  // namespace shale::kernels::emu
