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

// Returns minimum, median and maximum of the ranks' values; nullopt if any is NaN, which means
// unknown.
std::optional<Spread> spread_of(std::span<const double> by_rank);

// Returns the peak resident set size of this process. getrusage() would include the size of the
// process that started it.
int64_t peak_resident_bytes();

// Memory, communication and device metrics of all ranks since the last report.
class RankReport {
 public:
  // Group of ranks that communicate: "all", "shard", "replica". The group must outlive the report.
  struct Axis {
    std::string name;
    const comm::ProcessGroup* group = nullptr;
  };
  // axes: equal on all ranks; either all ranks have GPUs or none has. sensors, nccl: of this
  // rank's GPU; null: unknown. context and group must outlive this.
  RankReport(Context& context, comm::ProcessGroup& group, std::vector<Axis> axes,
             std::unique_ptr<GpuSensors> sensors = nullptr,
             std::unique_ptr<NcclTime> nccl = nullptr);
  ~RankReport();
  RankReport(const RankReport&) = delete;
  RankReport& operator=(const RankReport&) = delete;

  // Starts the run's measurements; earlier work does not count.
  void begin();
  // Returns the metrics of all ranks since begin() or the last gather(), equal on all ranks.
  // Collective, blocking. docs/reference/metrics.md lists the figures.
  RanksMetrics gather(int64_t step);
  // Returns the metrics since begin(), regardless of gather().
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
  std::unique_ptr<KernelTime> kernels_;  // null: kernels are asynchronous, their time unknown
  Mark begin_, last_;
};

// Returns a table for people; empty for a single rank.
std::string rank_table(const RanksMetrics& metrics);

// Returns what is wrong with the GPUs, by rank: idle for more than 10% of the time, waiting for
// collectives for more than 20%, more than 85 degrees, memory that differs by more than 10%. Empty
// on CPUs.
std::vector<std::string> gpu_warnings(const RanksMetrics& metrics);

}  // namespace shale::models
