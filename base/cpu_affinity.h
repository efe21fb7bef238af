#pragma once

#include <vector>

namespace shale {

// Number of CPUs that the threads of this process may use.
struct CpuCounts {
  int bound = 1;  // CPUs in the affinity mask, which a launcher may have reduced
  int node = 1;   // CPUs after widening the mask to the cpuset of the container or job
};

// Asks the kernel for both counts. To find `node`, it widens the calling thread's mask for a
// moment, because only the kernel knows which CPUs the cpuset allows.
CpuCounts cpu_counts();

struct ThreadPlan {
  int threads = 1;
  bool widen = false;  // the mask must first be widened to the CPUs of the node
};

// Returns the number of CPU threads of a rank. `requested` is --threads. 0, the default, gives the
// CPUs of the mask, but at most the rank's part of the node: ranks that are not bound, or are bound
// to the same socket, have the same mask. More threads than CPUs in the mask are allowed up to the
// rank's part of the node. For more than that, throws ConfigError, which suggests --bind-to none.
ThreadPlan plan_threads(int requested, int local_ranks, const CpuCounts& cpus);

// Restricts the calling thread's mask to those of its CPUs that are in `cpus`. There are
// `local_ranks` ranks on this host, and `ranks_beside` of them have a GPU near `cpus`. Changes
// nothing if no CPU would remain, or if each of these ranks would get fewer CPUs than its part of
// the mask. Returns whether it changed the mask.
bool bind_to_cpus(const std::vector<int>& cpus, int ranks_beside, int local_ranks);

// Calls plan_threads() for this process and widens the mask if the plan says so. Must be called on
// the main thread before OpenMP or other code starts threads, because threads inherit the mask that
// is set when they start. Also throws ConfigError if the system does not allow widening.
int resolve_threads(int requested, int local_ranks);

}  // namespace shale
