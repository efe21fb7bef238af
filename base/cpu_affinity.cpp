#include "shale/base/cpu_affinity.h"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "shale/base/error.h"

namespace shale {
namespace {

// cpu_set_t ends at 1024 CPUs, and the kernel rejects a mask that is too small for the machine.
constexpr size_t kMaxCpus = 16384;

class CpuMask {
 public:
  CpuMask() : words_(CPU_ALLOC_SIZE(kMaxCpus) / sizeof(unsigned long)) {}

  static CpuMask all() {
    CpuMask mask;
    std::fill(mask.words_.begin(), mask.words_.end(), ~0ul);
    return mask;
  }
  static CpuMask of_this_thread() {
    CpuMask mask;
    if (sched_getaffinity(0, mask.bytes(), mask.data()) != 0) {
      throw UnavailableError(cat("the CPU affinity mask cannot be read: ", std::strerror(errno)));
    }
    return mask;
  }

  // Sets the mask of this thread. The kernel keeps the CPUs that exist and that the cpuset allows.
  // Returns false if it refuses.
  bool apply() { return sched_setaffinity(0, bytes(), data()) == 0; }

  int count() { return CPU_COUNT_S(bytes(), data()); }

  CpuMask of(const std::vector<int>& cpus) {
    CpuMask mask;
    for (const int cpu : cpus) {
      const auto index = static_cast<size_t>(cpu);
      if (CPU_ISSET_S(index, bytes(), data())) CPU_SET_S(index, mask.bytes(), mask.data());
    }
    return mask;
  }

 private:
  size_t bytes() const { return words_.size() * sizeof(unsigned long); }
  cpu_set_t* data() { return reinterpret_cast<cpu_set_t*>(words_.data()); }

  std::vector<unsigned long> words_;
};

}  // namespace

CpuCounts cpu_counts() {
  CpuMask before = CpuMask::of_this_thread();
  CpuCounts counts = {.bound = before.count(), .node = before.count()};
  // A sandbox may forbid changing the mask. Then `node` is the number of CPUs in the mask, like
  // `bound`.
  if (!CpuMask::all().apply()) return counts;
  counts.node = CpuMask::of_this_thread().count();
  if (!before.apply()) {
    throw UnavailableError(cat("the CPU affinity mask cannot be restored: ", std::strerror(errno)));
  }
  return counts;
}

ThreadPlan plan_threads(int requested, int local_ranks, const CpuCounts& cpus) {
  if (requested < 0 || local_ranks < 1) {
    throw ConfigError(cat("--threads: expected 0 or more threads for 1 or more ranks, found ",
                          requested, " threads for ", local_ranks, " ranks"));
  }
  const int share = std::max(1, cpus.node / local_ranks);
  if (requested == 0) return {.threads = std::min(cpus.bound, share)};
  if (requested <= cpus.bound) return {.threads = requested};
  if (requested <= share) return {.threads = requested, .widen = true};
  throw ConfigError(cat("--threads: expected at most ", std::max(cpus.bound, share),
                        " threads, found ", requested, ": this rank may use ", cpus.bound,
                        " of the node's ", cpus.node, " CPUs, and ", local_ranks,
                        local_ranks == 1 ? " rank is" : " ranks are",
                        " on the node; if the launcher bound the rank to these CPUs, as mpirun "
                        "does for 1 or 2 ranks, start with mpirun --bind-to none"));
}

bool bind_to_cpus(const std::vector<int>& cpus, int ranks_beside, int local_ranks) {
  CpuMask now = CpuMask::of_this_thread();
  CpuMask near = now.of(cpus);
  if (near.count() == 0 || near.count() == now.count()) return false;
  if (near.count() / std::max(1, ranks_beside) < now.count() / std::max(1, local_ranks)) {
    return false;
  }
  return near.apply();
}

int resolve_threads(int requested, int local_ranks) {
  const ThreadPlan plan = plan_threads(requested, local_ranks, cpu_counts());
  if (plan.widen && !CpuMask::all().apply()) {
    throw ConfigError(cat("--threads: ", plan.threads, " threads need more CPUs than this rank is ",
                          "bound to, and binding it anew failed (", std::strerror(errno),
                          "); start with mpirun --bind-to none"));
  }
  return plan.threads;
}

}  // namespace shale
