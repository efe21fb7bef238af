#include "shale/models/plan/time/measured_cluster.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <vector>

#include "shale/base/clock.h"
#include "shale/base/error.h"
#include "shale/models/training/checks/gemm_peak.h"

namespace shale::models {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kLong = 4 << 20, kShort = 8;  // bytes of the two measured all-reduces
constexpr int64_t kCopied = 32 << 20;
constexpr int kRuns = 6;
constexpr double kUsable = 0.9;  // fraction of a node's memory that ranks can use

// Runs `run` kRuns times on all ranks, after a warm-up run. A run takes as long as on the slowest
// rank. Returns the time of the fastest run.
template <typename Run>
double seconds_of(comm::ProcessGroup& group, const Run& run) {
  run();
  double fastest = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kRuns; ++i) {
    group.barrier("cluster");
    const Clock::time_point start = Clock::now();
    run();
    double seconds = seconds_since(start);
    group.all_reduce_max(make_view(&seconds, {1}), {.tag = "cluster"});
    fastest = std::min(fastest, seconds);
  }
  return fastest;
}

double all_reduce_seconds(comm::ProcessGroup& group, int64_t bytes) {
  std::vector<float> values(size_t(bytes / 4));
  return seconds_of(group, [&] {
    group.all_reduce_sum(make_view(values.data(), {std::ssize(values)}), {.tag = "cluster"});
  });
}

// Measures all-reduces among `ends` nodes or ranks, where each end sends the data of `beside`
// ranks. Returns the link for which collective_seconds() gives the measured times.
ClusterLink link_of(comm::ProcessGroup& group, int64_t ends, int64_t beside) {
  if (ends == 1) return {.bandwidth = 1e12, .latency_s = 0};  // there is no communication
  const double least = all_reduce_seconds(group, kShort);
  const double most = std::max(all_reduce_seconds(group, kLong) - least, 1e-9);
  const double sent = 2 * double(ends - 1) / double(ends) * double(kLong) / double(beside);
  return {.bandwidth = sent / most, .latency_s = least / steps_among(ends)};
}

}  // namespace

Cluster measured_cluster(comm::World& world, int threads) {
  const auto group = world.group({.name = "cluster"});
  const int beside = world.local_size();
  int64_t unequal[] = {beside, -beside,
                       world.rank() % beside != world.local_rank() || world.size() % beside != 0};
  group->all_reduce_max(make_view(unequal, {3}), {.tag = "cluster"});
  if (unequal[0] != -unequal[1] || unequal[2] != 0) {
    throw ConfigError(
        "--cluster here needs the same number of consecutive ranks on each host; start the ranks "
        "in this order, or use a cluster file");
  }
  Cluster cluster{.device = "rank of this machine",
                  .source = "measured",
                  .is_gpu = false,
                  .launch_s = 1e-6,
                  .product_share = 1,
                  .attention_share = 0.8,
                  .attention_grad_share = 0.8,
                  .bandwidth_share = 1,
                  .overlap_tax = 1,
                  .devices_per_node = beside,
                  .links_are_fitted = true};
  Context context({.threads = threads});
  double peaks[] = {-measure_gemm_peak(context, DType::kF32),
                    -measure_gemm_peak(context, DType::kBF16)};
  group->all_reduce_max(make_view(peaks, {2}), {.tag = "cluster"});
  cluster.flops_fp32 = -peaks[0];
  cluster.flops_bf16 = -peaks[1];
  std::vector<std::byte> from(kCopied), to(kCopied);
  cluster.memory_bandwidth = 2 * double(kCopied) / seconds_of(*group, [&] {
                               std::memcpy(to.data(), from.data(), from.size());
                             });
  const auto node = group->split(world.rank() / beside, world.rank(), "cluster's node");
  cluster.node = link_of(*node, beside, 1);
  const int64_t nodes = world.size() / beside;
  cluster.network = nodes > 1 ? link_of(*group, nodes, beside) : cluster.node;
  // Gives all ranks the same figures: those of the slowest rank.
  double links[] = {-cluster.node.bandwidth, cluster.node.latency_s, -cluster.network.bandwidth,
                    cluster.network.latency_s};
  group->all_reduce_max(make_view(links, {4}), {.tag = "cluster"});
  cluster.node = {.bandwidth = -links[0], .latency_s = links[1]};
  cluster.network = {.bandwidth = -links[2], .latency_s = links[3]};
  cluster.memory =
      kUsable * double(sysconf(_SC_PHYS_PAGES)) * double(sysconf(_SC_PAGESIZE)) / beside;
  return cluster;
}

}  // namespace shale::models
