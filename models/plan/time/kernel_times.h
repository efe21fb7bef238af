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

// How a time was found, the most reliable way first.
enum class Basis : uint8_t {
  kMeasured,      // measured for exactly this work, on this machine
  kFitted,        // computed by a formula whose constants were measured
  kExtrapolated,  // computed by a formula with constants from data sheets
};
inline constexpr int kBases = 3;
const char* basis_name(Basis basis);
// Returns how the duration of an operation is found in groups with this spread.
Basis basis_of(const Cluster& cluster, comm::CollectiveOp op, const GroupSpread& group);

struct KernelTime {
  double seconds = 0;
  Basis basis = Basis::kExtrapolated;
};

// Durations of kernel calls in a plan. By default they come from kernel_seconds() for the cluster's
// devices. CPU kernels can be measured instead, once for each kind of call (name_of()). The kernel
// then really runs on the operands of the plan, which are all zeros, and the median of several runs
// counts. The time of single-threaded kernels is processor time, which other load on the machine
// hardly changes.
class KernelTimes {
 public:
  explicit KernelTimes(const Cluster& cluster) : cluster_(cluster) {}

  // True: measures kinds of calls that have no time yet. False: uses the cluster's figures for
  // them.
  void set_measures(bool measures) { measures_ = measures; }
  bool measures() const { return measures_; }
  // Pass of the dry run. It decides when kernels that have no time yet run for measurement.
  using Pass = RehearsalClock::Pass;
  void set_pass(Pass pass);
  // Multiplies each single-threaded time by `times`, because ranks share the cores of a node.
  void set_crowding(double times) { crowding_ = times; }

  // write() stores times for a later plan, and read() loads them. Each line has the seconds of one
  // kind of call and its name_of(). A missing file has no times. read() throws DataError for
  // malformed lines; write() throws DiskError if it cannot write.
  void read(const std::string& path);
  void write(const std::string& path) const;

  KernelTime of(const kernels::SlotCall& call);
  // Returns the duration of a copy within the memory that kernels work on.
  KernelTime of_copy(size_t bytes);
  // Returns the time that the host needs before a kernel launch; 0: unknown. A plan that measures
  // sets it.
  double host_seconds(int threads) const;
  void set_host_seconds(int threads, double seconds);

  // Returns the name of a kind of call: kernel, dtype, cost, GEMM shape and number of threads.
  static std::string name_of(const kernels::SlotCall& call, const kernels::KernelCall& kernel);

 private:
  struct Kind {
    int visits = 0;
    std::vector<double> runs;  // duration of each run, in seconds
  };
  // Returns the stored time of this name. If there is none, measures it with `run` if the pass
  // allows it; otherwise returns nothing.
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
  std::map<std::string, Kind> kinds_;       // kinds whose calls kVisit counts and kInPlace times
  std::vector<std::byte> copied_;           // buffer for measured copies
};

}  // namespace shale::models
