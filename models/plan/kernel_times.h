#pragma once

#include <map>
#include <string>

#include "shale/kernels/kernel_call.h"
#include "shale/models/plan/cluster.h"

namespace shale::models {

// How well a time is known.
enum class Basis : uint8_t {
  kMeasured,      // of this very work, on this machine
  kFitted,        // by a formula whose constants were measured
  kExtrapolated,  // by a formula, from data sheets
};
inline constexpr int kBases = 3;
const char* basis_name(Basis basis);
// Of collectives and messages.
Basis basis_of_links(const Cluster& cluster);

struct KernelTime {
  double seconds = 0;
  Basis basis = Basis::kExtrapolated;
};

// How long the calls of kernels take that a plan makes. Of a cluster's devices kernel_seconds()
// says it; calls of the CPU's kernels are measured instead, once for each kind of work, if it is
// asked for: the kernel runs for real, several times, on the plan's own operands, which are all
// zeros and get their pages then, and the median counts.
class KernelTimes {
 public:
  explicit KernelTimes(const Cluster& cluster) : cluster_(cluster) {}

  // Measures what has no time yet; else its time is the cluster's.
  void set_measures(bool measures) { measures_ = measures; }
  bool measures() const { return measures_; }
  // Times from an earlier plan, and for a later one: a line for each, seconds and name_of(). A file
  // that is not there has none. Throws DataError for one with other lines, DiskError if it cannot
  // be written.
  void read(const std::string& path);
  void write(const std::string& path) const;

  KernelTime of(const kernels::SlotCall& call);

  // What calls with equal times have equal: the kernel, its work and dtype, a product's shape, and
  // the threads.
  static std::string name_of(const kernels::SlotCall& call, const kernels::KernelCall& kernel);

 private:
  const Cluster& cluster_;
  bool measures_ = false;
  std::map<std::string, double> measured_;  // seconds by name_of()
};

}  // namespace shale::models
