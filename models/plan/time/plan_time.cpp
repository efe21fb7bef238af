#include "shale/models/plan/time/plan_time.h"

#include "shale/base/error.h"

namespace shale::models {
namespace {

void check_host_known(const RunConfig& config, const Cluster& cluster) {
  const bool offloads = config.offload != OffloadKind::kNone || config.offload_activations;
  if (!cluster.is_gpu || !offloads) return;
  if (cluster.host_bandwidth > 0 && cluster.host_memory_bandwidth > 0) return;
  throw ConfigError(cat(
      "plan: the time of offloading is unknown for the cluster of ", cluster.device,
      "; set host_gbytes_per_s and host_memory_gbytes_per_s in its file, or use --offload none"));
}

}  // namespace

TimedRank plan_time(const RunConfig& config, Task& task, int rank, int ranks,
                    const PlanMachines& machines) {
  check_host_known(config, machines.cluster);
  StepClock clock(machines.cluster, machines.kernels, ranks);
  TimedRank planned{plan_rank(config, task, rank, ranks, &clock, machines.lists_memory), {}};
  planned.time = clock.time();
  return planned;
}

}  // namespace shale::models
