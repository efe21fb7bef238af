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
#include "shale/runtime/tensor/gpu_sensors.h"
#include "shale/runtime/tensor/nccl_time.h"

namespace shale::models {

// Returns minimum, median and maximum over the ranks. Returns nullopt if a value is NaN, which
// means unknown.
std::optional<Spread> spread_of(std::span<const double> by_rank);

// Returns the peak resident set size of this process. Does not use getrusage(), which includes the
// size of the process that started this one.
int64_t peak_resident_bytes();

// Memory, communication and device metrics of all ranks since the last report.
class RankReport {
 public:
  // Group of ranks that communicate, such as "all", "shard" or "replica". The group must outlive
  // the report.
  struct Axis {
    std::string name;
    const comm::ProcessGroup* group = nullptr;
  };
  // axes: must be equal on all ranks. sensors, nccl: of this rank's GPU; null: unknown. Either all
  // ranks must have GPUs, or none. `context` and `group` must outlive this.
  RankReport(Context& context, comm::ProcessGroup& group, std::vector<Axis> axes,
             std::unique_ptr<GpuSensors> sensors = nullptr,
             std::unique_ptr<NcclTime> nccl = nullptr);
  ~RankReport();
  RankReport(const RankReport&) = delete;
  RankReport& operator=(const RankReport&) = delete;

  // Starts the run's measurements; earlier work does not count.
  void begin();
  // Returns the metrics of all ranks since begin() or the last gather(). All ranks get the same.
  // Collective, blocking. docs/reference/metrics.md lists the values.
  RanksMetrics gather(int64_t step);
  // Returns the metrics since begin(), whether or not gather() was called since.
  RanksMetrics gather_whole_run(int64_t step);

 private:
  class KernelTime;
  struct Mark {  // totals of this rank at a point in time, in seconds
    std::chrono::steady_clock::time_point time;
    double busy = 0;
    std::vector<double> exposed, in_flight;  // seconds by axis
    GpuSensors::Totals gpu = {};
    double nccl = 0;
  };
  Mark mark() const;
  std::vector<std::pair<std::string, double>> figures(const Mark& from, const Mark& to) const;
  RanksMetrics exchange(int64_t step, const Mark& from, const Mark& to);

  Context& context_;
  comm::ProcessGroup& group_;
  std::vector<Axis> axes_;
  std::unique_ptr<GpuSensors> sensors_;
  std::unique_ptr<NcclTime> nccl_;
  std::unique_ptr<KernelTime> kernels_;  // null: kernels are asynchronous, so their time is unknown
  Mark begin_, last_;
};

// Returns a table as text; empty for a single rank.
std::string rank_table(const RanksMetrics& metrics);

// Kinds of GPU problems that a run has already warned of.
struct GpuWarnings {
  bool idle = false, waiting = false, hot = false, uneven = false;
};
// Returns a warning for each kind of GPU problem that the metrics show and `given` does not yet
// have, and adds the kind to `given`. Kinds: a GPU is idle for more than 10% of the time; a rank
// waits for collectives for more than 20% of the time; a GPU is hotter than 85 degrees; memory use
// differs by more than 10% between GPUs. Empty on CPUs.
std::vector<std::string> gpu_warnings(const RanksMetrics& metrics, GpuWarnings& given);

}  // namespace shale::models
