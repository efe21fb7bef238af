#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "shale/kernels/kernel_call.h"
#include "shale/models/plan/plan_rank.h"
#include "shale/models/plan/time/cluster.h"

namespace shale::models {

// Ways in which a time was found, the most reliable first.
enum class Basis : uint8_t {
  kMeasured,      // measured for exactly this work, on this machine
  kFitted,        // computed by a formula whose constants were measured
  kExtrapolated,  // computed by a formula with constants from data sheets
};
inline constexpr int kBases = 3;
const char* basis_name(Basis basis);
// Basis of the duration of an operation in groups with this spread.
Basis basis_of(const Cluster& cluster, comm::CollectiveOp op, const GroupSpread& group);

struct KernelTime {
  double seconds = 0;
  Basis basis = Basis::kExtrapolated;
};

// Durations of the kernel calls of a plan. By default they come from kernel_seconds() for the
// cluster's devices. CPU kernels can be measured instead, once per kind of work: the kernel really
// runs on the plan's operands, which are all zeros, and the median of several runs counts.
// Single-threaded kernels are measured in processor time, which other load on the machine hardly
// changes.
class KernelTimes {
 public:
  explicit KernelTimes(const Cluster& cluster) : cluster_(cluster) {}

  // True: measures kinds of work without a time. False: uses the cluster's figures for them.
  void set_measures(bool measures) { measures_ = measures; }
  bool measures() const { return measures_; }
  // Pass of the dry run, which decides when kernels without a time are run for measurement.
  using Pass = RehearsalClock::Pass;
  void set_pass(Pass pass);
  // Multiplies each single-threaded time by `times`, for ranks that share a node's cores.
  void set_crowding(double times) { crowding_ = times; }

  // Loads times of an earlier plan, and stores them for a later one: one line per kind, seconds and
  // name_of(). A missing file has no times. read() throws DataError for malformed lines; write()
  // throws DiskError if it cannot write.
  void read(const std::string& path);
  void write(const std::string& path) const;

  KernelTime of(const kernels::SlotCall& call);
  // Duration of a copy within the memory that kernels work on.
  KernelTime of_copy(size_t bytes);
  // Host time before a kernel launch; 0: unknown. Set by a plan that measures.
  double host_seconds(int threads) const;
  void set_host_seconds(int threads, double seconds);

  // Key of a kind of work: kernel, cost and dtype, GEMM shape and number of threads.
  static std::string name_of(const kernels::SlotCall& call, const kernels::KernelCall& kernel);

 private:
  struct Kind {
    int visits = 0;
    std::vector<double> runs;  // duration of each run, in seconds
  };
  // Returns the stored time of this name, or measures it with `run` if the pass allows that;
  // otherwise nothing.
  std::optional<double> measured(const std::string& name, int threads,
                                 const std::function<void()>& run);
  double crowded(double seconds, int threads) const {
    return threads == 1 ? crowding_ * seconds : seconds;
  }

  const Cluster& cluster_;
  bool measures_ = false;
  Pass pass_ = Pass::kAtOnce;
  double crowding_ = 1;
  std::map<std::string, double> measured_;  // seconds by name_of()
  std::map<std::string, Kind> kinds_;       // counted by kVisit, timed by kInPlace
  std::vector<std::byte> copied_;           // buffer for measured copies
};

}  // namespace shale::models
