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

// How well a time is known.
enum class Basis : uint8_t {
  kMeasured,      // of this very work, on this machine
  kFitted,        // by a formula whose constants were measured
  kExtrapolated,  // by a formula, from data sheets
};
inline constexpr int kBases = 3;
const char* basis_name(Basis basis);
// Of an operation of such groups.
Basis basis_of(const Cluster& cluster, comm::CollectiveOp op, const GroupSpread& group);

struct KernelTime {
  double seconds = 0;
  Basis basis = Basis::kExtrapolated;
};

// How long the calls of kernels take that a plan makes. Of a cluster's devices kernel_seconds()
// says it; calls of the CPU's kernels are measured instead, if it is asked for, each kind of work
// once: the kernel runs for real on the plan's own operands, which are all zeros, and the median of
// several runs counts. With one thread that is its processor time, which what else the machine does
// hardly changes.
class KernelTimes {
 public:
  explicit KernelTimes(const Cluster& cluster) : cluster_(cluster) {}

  // Measures what has no time yet; else its time is the cluster's.
  void set_measures(bool measures) { measures_ = measures; }
  bool measures() const { return measures_; }
  // Where kernels run that have no time yet.
  using Pass = RehearsalClock::Pass;
  void set_pass(Pass pass);
  // Ranks of one thread share their node's cores: everything takes so many times its processor
  // time.
  void set_crowding(double times) { crowding_ = times; }

  // Times from an earlier plan, and for a later one: a line for each, seconds and name_of(). A file
  // that is not there has none. Throws DataError for one with other lines, DiskError if it cannot
  // be written.
  void read(const std::string& path);
  void write(const std::string& path) const;

  KernelTime of(const kernels::SlotCall& call);
  // A copy inside the memory that kernels work on.
  KernelTime of_copy(size_t bytes);
  // What the host does before a kernel is called; 0: not known. `set`: of a plan that measures.
  double host_seconds(int threads) const;
  void set_host_seconds(int threads, double seconds);

  // What calls with equal times have equal: the kernel, its work and dtype, a product's shape, and
  // the threads.
  static std::string name_of(const kernels::SlotCall& call, const kernels::KernelCall& kernel);

 private:
  struct Kind {
    int visits = 0;
    std::vector<double> runs;  // seconds
  };
  // What was measured under this name, or is now by running it; nothing where there is neither.
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
  std::map<std::string, Kind> kinds_;       // of a visit, and what is measured in place after it
  std::vector<std::byte> copied_;           // memory of copies that are measured
};

}  // namespace shale::models
