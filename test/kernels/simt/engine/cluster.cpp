// Runs cluster kernels with deliberate mistakes. The emulator must find each mistake under every
// order of threads, or, where noted, under some orders.
#include <algorithm>

#include "shale/kernels/simt/hopper.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/emulator.h"

namespace shale::kernels::emu {
namespace {

using emulator::Fault;

constexpr int kThreads = 64, kTurns = 3;
constexpr int kHalf = 8 * 32;  // floats in a box: 8 lines of 32

// A kernel's mistakes, as bits; 0 means that the kernel is correct.
enum Mistake : unsigned {
  kNone = 0,
  kNoFirstSync = 1,
  kNoLastSync = 2,
  kNoInitFence = 4,
  kNoEmptyWait = 8,
  kOwnArrivalOnly = 16,
  kMissingArrival = 32,
  kNoFullWait = 64,
  kExpectsHalf = 128,
  kThirdBlock = 256,
  kNoTarget = 512,
};

struct Barriers {
  MBarrier full, empty;
};

__device__ int thread_id() {
  return static_cast<int>(threadIdx.x);
}

// ---- Two blocks each load half of a tile and multicast it; both read the whole tile. ----
// Output: [turns, blocks, 2 kHalf].
__global__ void shared_tiles_kernel(const __grid_constant__ TensorMap map, float* out,
                                    unsigned mistakes) {
  await_previous_grid();
  const auto does = [&](Mistake mistake) { return (mistakes & mistake) != 0; };
  Barriers& barriers = shared<Barriers>();
  float* const tile = dynamic_shared<float>();
  const int rank = cluster_rank(), thread = thread_id();
  if (thread == 0) {
    mbarrier_init(barriers.full, 1);
    mbarrier_init(barriers.empty, does(kOwnArrivalOnly) ? 1 : 2);
    if (!does(kNoInitFence)) fence_mbarrier_init();
  }
  if (does(kNoFirstSync)) {
    __syncthreads();
  } else {
    cluster_sync();
  }
  for (int turn = 0; turn < kTurns; ++turn) {
    if (thread == 0) {
      if (!does(kNoEmptyWait)) mbarrier_wait(barriers.empty, turn % 2 ^ 1);
      mbarrier_arrive_expect(barriers.full, (does(kExpectsHalf) ? 1 : 2) * kHalf * 4);
      const unsigned targets = does(kThirdBlock) ? 7 : does(kNoTarget) ? 0 : 3;
      tma_load_multicast(tile + rank * kHalf, map, barriers.full, targets, 0, 16 * turn + 8 * rank);
    }
    if (!does(kNoFullWait)) mbarrier_wait(barriers.full, turn % 2);
    for (int i = thread; i < 2 * kHalf; i += kThreads) {
      out[(turn * 2 + rank) * 2 * kHalf + i] = tile[i];
    }
    __syncthreads();
    if (thread > 0) continue;
    for (int other = 0; other < 2; ++other) {
      if (does(kOwnArrivalOnly) && other != rank) continue;
      if (does(kMissingArrival) && rank == 1 && other == 0) continue;
      mbarrier_arrive_at(barriers.empty, other);
    }
  }
  if (!does(kNoLastSync)) cluster_sync();
}

// ---- Block 0 sends words, in turn, to itself and to block 1, and all threads read them. ----
struct Mail {
  MBarrier full, read;
  uint32_t word;
};
__global__ void mail_kernel(uint32_t* out, bool waits) {
  await_previous_grid();
  Mail& mail = shared<Mail>();
  const int rank = cluster_rank(), thread = thread_id();
  if (thread == 0) {
    mbarrier_init(mail.full, 1);
    mbarrier_init(mail.read, 2 * kThreads);
    fence_mbarrier_init();
  }
  cluster_sync();
  for (int turn = 0; turn < kTurns; ++turn) {
    if (thread == 0) mbarrier_arrive_expect(mail.full, 4);
    if (thread == 0 && rank == 0) {
      mbarrier_wait(mail.read, turn % 2 ^ 1);
      for (int to = 0; to < 2; ++to) {
        send_word(mail.word, static_cast<uint32_t>(10 * turn + to), mail.full, to);
      }
    }
    if (waits) mbarrier_wait(mail.full, turn % 2);
    out[(turn * 2 + rank) * kThreads + thread] = mail.word;
    mbarrier_arrive_at(mail.read, 0);
  }
  cluster_sync();
}

// ---- Other kernels ----

__global__ void half_a_cluster_syncs_kernel() {
  if (cluster_rank() == 0) cluster_sync();
}

// Block 1 accesses a barrier of block 0, which may have ended.
__global__ void arrive_late_kernel() {
  Barriers& barriers = shared<Barriers>();
  if (thread_id() == 0) {
    mbarrier_init(barriers.full, 1);
    fence_mbarrier_init();
  }
  cluster_sync();
  if (cluster_rank() == 0) return;
  for (int i = 0; i < 4; ++i) __syncthreads();
  if (thread_id() == 0) mbarrier_arrive_at(barriers.full, 0);
}

__global__ void write_there_kernel(bool syncs, float* out) {
  float* const words = dynamic_shared<float>();
  words[thread_id()] = 1;
  if (syncs) cluster_sync();
  out[blockIdx.x * kThreads + threadIdx.x] = float(cluster_rank());
}

// ---- Running the kernels ----

template <typename... Params, typename... Args>
test::FoundFault run(const emulator::Options& options, int blocks, int cluster,
                     void (*kernel)(Params...), Args... args) {
  return test::fault_of(options, [&](const Exec& exec) {
    simt::launch(kernel,
                 {.grid = blocks, .block = kThreads, .smem_bytes = 8192, .cluster = cluster}, exec,
                 args...);
  });
}

template <typename... Params, typename... Args>
void expect(std::initializer_list<Fault> faults, const char* text, void (*kernel)(Params...),
            Args... args) {
  for (const auto& options : test::emulator_orders()) {
    const auto found = run(options, 2, 2, kernel, args...);
    CAPTURE(text, test::describe(options), found.message);
    CHECK((found.found && std::ranges::count(faults, found.fault) == 1));
    CHECK(test::contains(found.message, text));
  }
}

// An array of lines of 32 floats, with consecutive values. A cluster reads the first 16 kTurns
// lines.
struct Tiles {
  Tiles() : in(32 * 16 * kTurns) {
    for (size_t i = 0; i < in.size(); ++i) in[i] = float(i);
  }
  TensorMap map() const {
    return make_tensor_map({.data = in.data(),
                            .dtype = DType::kF32,
                            .sizes = {32, 16 * kTurns},
                            .strides = {1, 32},
                            .box = {32, 8},
                            .swizzle = false});
  }
  std::vector<float> in;
};

// Returns true if the build has the tracker, without which some mistakes cannot be found. Otherwise
// warns and returns false.
bool tracked() {
  if (emulator::has_instrumented_kernels()) return true;
  WARN("skipped: this build's kernels are not instrumented");
  return false;
}

}  // namespace

TEST_CASE("blocks of a cluster multicast halves of a tile to each other under every order",
          "[kernels][emulator]") {
  const Tiles tiles;
  for (const auto& options : test::emulator_orders()) {
    std::vector<float> out(kTurns * 2 * 2 * kHalf);
    const auto found =
        run(options, 2, 2, shared_tiles_kernel, tiles.map(), out.data(), unsigned{kNone});
    CAPTURE(test::describe(options), found.message);
    REQUIRE_FALSE(found.found);
    for (size_t i = 0; i < out.size(); ++i) {
      const size_t turn = i / (4 * kHalf), in_tile = i % (2 * kHalf);
      REQUIRE(out[i] == tiles.in[turn * 2 * kHalf + in_tile]);
    }
  }
}

TEST_CASE("words sent to a block of the cluster are there when its mbarrier has counted them",
          "[kernels][emulator]") {
  for (const auto& options : test::emulator_orders()) {
    std::vector<uint32_t> out(kTurns * 2 * kThreads);
    const auto found = run(options, 2, 2, mail_kernel, out.data(), true);
    CAPTURE(test::describe(options), found.message);
    REQUIRE_FALSE(found.found);
    for (size_t i = 0; i < out.size(); ++i) {
      REQUIRE(out[i] == 10 * (i / (2 * kThreads)) + i / kThreads % 2);
    }
  }
  if (!tracked()) return;
  std::vector<uint32_t> out(kTurns * 2 * kThreads);
  expect({Fault::kUninitialised, Fault::kAsyncCopy, Fault::kRace}, "static shared object",
         mail_kernel, out.data(), false);
}

TEST_CASE("misused barriers of a cluster are reported and do not hang", "[kernels][emulator]") {
  const Tiles tiles;
  std::vector<float> out(kTurns * 2 * 2 * kHalf);
  const auto tile = [&](std::initializer_list<Fault> faults, const char* text, Mistake mistake) {
    expect(faults, text, shared_tiles_kernel, tiles.map(), out.data(), unsigned{mistake});
  };
  tile({Fault::kDeadlock}, "lacks 1 of 2 arrivals and 0 bytes", kMissingArrival);
  tile({Fault::kProxyFence}, "no fence_mbarrier_init() has followed", kNoInitFence);
  tile({Fault::kCluster}, "tma_load_multicast: no block 2 in a cluster of 2", kThirdBlock);
  tile({Fault::kCluster}, "an empty mask", kNoTarget);
  expect({Fault::kDeadlock}, "block 1 of the cluster: threads 0-63 have ended",
         half_a_cluster_syncs_kernel);
  if (!tracked()) return;
  // With this mistake, threads do not wait at the start. The static object that contains the
  // barriers may not exist yet.
  tile({Fault::kRace, Fault::kBarrierMisuse, Fault::kOutOfBounds}, "shared", kNoFirstSync);
  // The kernel waits for half of the tile, so the other half may not have arrived.
  tile({Fault::kAsyncCopy, Fault::kUninitialised, Fault::kRace}, "dynamic shared memory",
       kExpectsHalf);
  tile({Fault::kAsyncCopy, Fault::kUninitialised, Fault::kRace}, "dynamic shared memory",
       kNoFullWait);
}

TEST_CASE("a tile is not loaded anew before all blocks of the cluster have read it",
          "[kernels][emulator]") {
  const Tiles tiles;
  std::vector<float> out(kTurns * 2 * 2 * kHalf);
  if (!tracked()) return;
  expect({Fault::kRace, Fault::kAsyncCopy}, "a bulk copy for mbarrier 0", shared_tiles_kernel,
         tiles.map(), out.data(), unsigned{kNoEmptyWait});
  expect({Fault::kRace, Fault::kAsyncCopy}, "of the cluster", shared_tiles_kernel, tiles.map(),
         out.data(), unsigned{kOwnArrivalOnly});
}

// The emulator finds these mistakes only in some orders: in other orders the block ends after the
// access.
TEST_CASE("nobody reaches into a block of the cluster that has ended", "[kernels][emulator]") {
  const Tiles tiles;
  std::vector<float> out(kTurns * 2 * 2 * kHalf);
  int late = 0, tiles_late = 0;
  for (const auto& options : test::emulator_orders()) {
    const auto is_found = [&](const test::FoundFault& found) {
      CAPTURE(test::describe(options), found.message);
      if (!found.found) return 0;
      CHECK(found.fault == Fault::kCluster);
      CHECK(test::contains(found.message, "has ended, and its shared memory with it"));
      return 1;
    };
    late += is_found(run(options, 2, 2, arrive_late_kernel));
    tiles_late += is_found(
        run(options, 2, 2, shared_tiles_kernel, tiles.map(), out.data(), unsigned{kNoLastSync}));
  }
  CHECK(late > 0);
  CHECK(tiles_late > 0);
}

TEST_CASE("every cluster of a grid runs, and ranks go along x", "[kernels][emulator]") {
  for (const auto& options : test::emulator_orders()) {
    for (const int cluster : {1, 2, 4, 8}) {
      std::vector<float> out(16 * kThreads, -1);
      const auto found = run(options, 16, cluster, write_there_kernel, true, out.data());
      CAPTURE(test::describe(options), cluster, found.message);
      REQUIRE_FALSE(found.found);
      for (size_t i = 0; i < out.size(); ++i) {
        REQUIRE(out[i] == float(i / kThreads % size_t(cluster)));
      }
    }
  }
}

TEST_CASE("clusters that no GPU would launch are refused", "[kernels][emulator]") {
  float* const none = nullptr;
  const auto refused = [&](int blocks, int cluster, int arch) {
    const auto found = test::fault_of({}, [&](const Exec& exec) {
      Exec gpu = exec;
      gpu.device.arch = arch;
      simt::launch(write_there_kernel,
                   {.grid = blocks, .block = kThreads, .smem_bytes = 1024, .cluster = cluster}, gpu,
                   true, none);
    });
    CHECK(found.fault == Fault::kLaunch);
    return found.message;
  };
  CHECK(test::contains(refused(3, 2, 90), "clusters of 2 blocks in a grid of 3 blocks in x"));
  CHECK(test::contains(refused(32, 16, 90), "expected clusters of 1 to 8 blocks"));
  CHECK(test::contains(refused(2, 0, 90), "clusters of 0 blocks"));
  CHECK(test::contains(refused(2, 2, 80), "clusters on compute capability 8.0, expected 9.0"));
}

}  // namespace shale::kernels::emu
