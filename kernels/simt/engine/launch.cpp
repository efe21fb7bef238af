#include "shale/kernels/simt/engine/launch.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <memory>
#include <utility>

#include "shale/base/gpu_model.h"
#include "shale/base/text.h"
#include "shale/kernels/cpu/parallel.h"
#include "shale/kernels/dry_run.h"
#include "shale/kernels/simt/engine/cluster.h"
#include "shale/kernels/simt/engine/launch_log.h"
#include "shale/kernels/simt/engine/stream.h"

namespace shale::emulator {
namespace {

// Each worker maps two regions of memory per thread of a block, for the stacks; Linux allows 65530.
constexpr int kMaxWorkers = 16;

int64_t count(const Index3& size) {
  return int64_t{size.x} * size.y * size.z;
}

void check(const Grid& grid, int arch) {
  const auto refuse = [&](const std::string& what) {
    throw KernelError(Fault::kLaunch,
                      cat(grid.site.function, " (", grid.site, "): launch: ", what));
  };
  const Index3 &blocks = grid.blocks, &threads = grid.threads;
  if (count(blocks) == 0 || blocks.x > 0x7fffffffu || blocks.y > 65535 || blocks.z > 65535) {
    refuse(cat("a grid of (", blocks.x, ",", blocks.y, ",", blocks.z,
               ") blocks, expected 1 to 2^31-1 in x, to 65535 in y and z"));
  }
  if (count(threads) == 0 || count(threads) > kMaxThreads || threads.z > 64) {
    refuse(cat("blocks of (", threads.x, ",", threads.y, ",", threads.z,
               ") threads, expected 1 to 1024, at most 64 in z"));
  }
  if (grid.dynamic_bytes > grid.shared_limit) {
    refuse(cat(grid.dynamic_bytes, " bytes of shared memory, a block has ", grid.shared_limit,
               grid.asked_for_shared ? "" : " unless more is requested"));
  }
  if (grid.cluster < 1 || grid.cluster > kMaxCluster ||
      blocks.x % static_cast<unsigned>(grid.cluster) != 0) {
    refuse(cat("clusters of ", grid.cluster, " blocks in a grid of ", blocks.x,
               " blocks in x, expected clusters of 1 to ", kMaxCluster,
               " blocks that divide the grid"));
  }
  if (grid.cluster > 1 && arch < 90) {
    refuse(
        cat("clusters on compute capability ", capability_text(arch), ", expected 9.0 or later"));
  }
  if (grid.dependent && arch < 90) {
    refuse(cat("dependent launch on compute capability ", capability_text(arch),
               ", expected 9.0 or later"));
  }
}

// Returns the cluster that runs at this position in the launch. Clusters start in any order on a
// GPU, so the order varies here too.
int64_t cluster_at(const Grid& grid, int64_t position, int64_t clusters) {
  switch (grid.options.order) {
    case Order::kFifo: return position;
    case Order::kLifo: return clusters - 1 - position;
    case Order::kRandom: break;
  }
  // A permutation that needs no table: shifts the clusters by the seed, and reverses their order if
  // the seed is odd.
  const auto shift = static_cast<int64_t>(grid.options.seed % static_cast<uint64_t>(clusters));
  const int64_t shifted = (position + shift) % clusters;
  return grid.options.seed % 2 == 0 ? shifted : clusters - 1 - shifted;
}

Cluster& this_workers_cluster() {
  // Stacks and shared memory take some hundred KiB, so they are allocated once per OS thread.
  thread_local Cluster cluster;
  return cluster;
}

// Returns the launch state that checks of global memory need; null if the allocations are unknown.
std::unique_ptr<GlobalLaunch> begin_launch(const Exec& exec, bool several_workers) {
  if (exec.stream == nullptr) return nullptr;
  GlobalMemory& memory = static_cast<Stream*>(exec.stream)->memory();
  auto table = memory.table();
  if (table == nullptr) return nullptr;
  auto launch = std::make_unique<GlobalLaunch>();
  launch->table = std::move(table);
  launch->number = memory.next_launch();
  launch->several_workers = several_workers;
  return launch;
}

void run(const Exec& exec, const Grid& grid) {
  const int64_t clusters = count(grid.blocks) / grid.cluster;
  std::atomic<int64_t> failed = std::numeric_limits<int64_t>::max();
  std::atomic<bool> any_failed = false;
  Exec workers = exec;
  workers.threads = std::min(exec.threads, kMaxWorkers);
  const auto launch = begin_launch(exec, workers.threads > 1 && clusters > 1);
  const auto run_cluster = [&](int64_t position, int64_t) {
    // For any number of workers, the launch reports the failing cluster that comes first. So
    // clusters before a failed one still run, and clusters after it do not.
    if (position > failed.load(std::memory_order_relaxed)) return;
    const auto linear = static_cast<uint64_t>(cluster_at(grid, position, clusters) * grid.cluster);
    const uint64_t x = grid.blocks.x, y = grid.blocks.y;
    try {
      const Index3 first = {static_cast<unsigned>(linear % x),
                            static_cast<unsigned>(linear / x % y),
                            static_cast<unsigned>(linear / (x * y))};
      this_workers_cluster().run(grid, first, launch.get(), any_failed);
    } catch (...) {
      any_failed = true;
      int64_t lowest = failed.load();
      while (position < lowest && !failed.compare_exchange_weak(lowest, position)) {
      }
      throw;
    }
  };
  kernels::parallel_for(workers, clusters, 1, run_cluster, kernels::Schedule::kDynamic);
}

}  // namespace

size_t shared_limit(int arch) {
  return gpu_model(arch == 0 ? 90 : arch).block_shared_bytes;
}

void launch(const Exec& exec, Grid grid) {
  grid.shared_limit =
      grid.asked_for_shared ? shared_limit(exec.device.arch) : SharedMemory::kUnasked;
  grid.dependent = exec.dependent_launch;
  check(grid, exec.device.arch);
  if (kernels::DryRun::is_on()) return;
  log_launch(grid, exec.device.arch);
  auto* stream = static_cast<Stream*>(exec.stream);
  grid.options = stream != nullptr ? stream->options() : default_options();
  if (stream == nullptr) return run(exec, grid);
  stream->enqueue([exec, grid = std::move(grid)] { run(exec, grid); });
}

}  // namespace shale::emulator
