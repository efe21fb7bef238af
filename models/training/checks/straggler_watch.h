#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace shale::models {

// Detects ranks that delay the other ranks. All ranks take the same time for a step, but a slow
// rank spends it working while the other ranks wait for it.
class StragglerWatch {
 public:
  struct Options {
    double factor = 1.5;  // minimum time of a slow rank / median of the ranks
    // Minimum excess of a slow rank over the median, per step; less is noise.
    double least_s = 0.005;
    int64_t steps = 10;   // steps averaged per report, because single steps vary
    int64_t reports = 3;  // consecutive reports of a slow rank before a warning
    // Pipeline stage of each rank. Ranks are compared only within their stage, because stages have
    // different amounts of work. Empty: a single stage.
    std::vector<int> stages = {};
    std::vector<std::string> places = {};  // rank descriptions for warnings; empty: none
  };
  StragglerWatch() = default;
  explicit StragglerWatch(Options options) : options_(std::move(options)) {}

  // busy_s: for each rank, the time of a step without waits for other ranks. Returns warnings, a
  // line for each rank that has been slow for `reports` times `steps` steps. After that, it returns
  // a warning for the same rank only after ten times as many steps.
  std::vector<std::string> look(std::span<const double> busy_s);

 private:
  struct Rank {
    double busy_s = 0;         // busy time over the steps since the last report
    int64_t slow_reports = 0;  // number of consecutive slow reports
    int64_t name_at = 0;       // number of slow reports that triggers the next warning
  };
  std::vector<std::string> report();
  std::string name_of(size_t rank) const;
  int stage_of(size_t rank) const;

  Options options_;
  std::vector<Rank> ranks_;
  int64_t steps_ = 0;  // steps since the last report
};

}  // namespace shale::models
