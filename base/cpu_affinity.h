#pragma once

#include <vector>

namespace shale {

// The CPUs that this process's threads may use.
struct CpuCounts {
  int bound = 1;  // in the affinity mask, which a launcher may have narrowed
  int node = 1;   // what the mask can be widened to: the cpuset of the container or job, or all
};

// Asks the kernel. Widens the calling thread's mask for a moment to find out `node`, because only
// the kernel knows what a cpuset leaves of a mask.
CpuCounts cpu_counts();

struct ThreadPlan {
  int threads = 1;
  bool widen = false;  // the mask must grow to the node's CPUs first
};

// How many CPU threads a rank uses. `requested` is --threads, 0 for the default: the mask, but no
// more than the rank's share of the node, because ranks that are not bound, or bound to one socket,
// have the same mask. More than the mask holds is granted up to the share. Throws ConfigError above
// that, with the way out: --bind-to none.
ThreadPlan plan_threads(int requested, int local_ranks, const CpuCounts& cpus);

// Narrows the calling thread's mask to those of `cpus` that are in it, for the ranks that have
// their GPU beside these, of all on this host: unless none is in it, or each of these ranks would
// have fewer CPUs than its share of the mask. Returns whether it did.
bool bind_to_cpus(const std::vector<int>& cpus, int ranks_beside, int local_ranks);

// plan_threads() for this process, with the mask widened where the plan says so. Call it on the
// main thread before OpenMP or anything else starts threads: they inherit the mask they are born
// with. Throws ConfigError also if the system does not allow widening.
int resolve_threads(int requested, int local_ranks);

}  // namespace shale
