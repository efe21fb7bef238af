#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "shale/comm/process_group.h"
#include "shale/kernels/slot.h"
#include "shale/models/training/report/metrics.h"
#include "shale/runtime/tensor/context.h"

namespace shale::models {

// The least, the median and the most of the ranks' values; nullopt if one of them is NaN, which is
// how a rank says that it does not know.
std::optional<Spread> spread_of(std::span<const double> by_rank);

// Largest resident size of this process so far. That of getrusage() begins with the size of the
// process that started it, which may have been a large one.
int64_t peak_resident_bytes();

// What the ranks' memory, communication and devices did in the steps since the last look.
class RankReport {
 public:
  // Ranks that exchange something: "all", "shard", "replica". The group outlives the report.
  struct Axis {
    std::string name;
    const comm::ProcessGroup* group = nullptr;
  };
  // axes: the same on all ranks. context and group outlive this.
  RankReport(Context& context, comm::ProcessGroup& group, std::vector<Axis> axes);
  ~RankReport();
  RankReport(const RankReport&) = delete;
  RankReport& operator=(const RankReport&) = delete;

  // The run begins: what was done up to here is not looked at.
  void begin();
  // What all ranks did since begin() or the last gather(). Collective, blocking; the same on all
  // ranks. docs/metrics.md has the figures.
  RanksMetrics gather(int64_t step);
  // The same since begin(), whatever was gathered meanwhile.
  RanksMetrics gather_whole_run(int64_t step);

 private:
  class KernelTime;
  struct Mark {  // what this rank has done at a point in time, in seconds
    std::chrono::steady_clock::time_point time;
    double busy = 0;
    std::vector<double> exposed, in_flight;  // by axis
  };
  Mark mark() const;
  std::vector<std::pair<std::string, double>> figures(const Mark& from, const Mark& to) const;
  RanksMetrics exchange(int64_t step, const Mark& from, const Mark& to);

  Context& context_;
  comm::ProcessGroup& group_;
  std::vector<Axis> axes_;
  std::unique_ptr<KernelTime> kernels_;  // null: kernels are queued, and nobody knows how long
  Mark begin_, last_;
};

// A table for people; empty for one rank.
std::string rank_table(const RanksMetrics& metrics);

}  // namespace shale::models
