#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace shale::models {

// Finds ranks that hold up the others: all ranks take the same time for a step, but a slow one
// spends it working while the others wait for it.
class StragglerWatch {
 public:
  struct Options {
    double factor = 1.5;     // of the median of the ranks' times
    double least_s = 0.005;  // a step beyond the median: less is noise
    int64_t steps = 10;      // that are looked at together, as one alone is a matter of chance
    int64_t reports = 3;     // in a row, until a rank is named
    // By rank: which stage of a pipeline it has. Stages differ in their work, so that a rank is
    // compared with those of its own. Empty: there is one.
    std::vector<int> stages = {};
    std::vector<std::string> places = {};  // by rank, for the warning; empty: none
  };
  StragglerWatch() = default;
  explicit StragglerWatch(Options options) : options_(std::move(options)) {}

  // busy_s: by rank, the time of a step without waiting for others. Returns what to warn of: a line
  // for each rank that has been slow for `reports` times `steps` steps. If it goes on, or comes
  // back, a rank is named again only after ten times as many.
  std::vector<std::string> look(std::span<const double> busy_s);

 private:
  struct Rank {
    double busy_s = 0;         // over the steps since the last report
    int64_t slow_reports = 0;  // in a row
    int64_t name_at = 0;       // reports
  };
  std::vector<std::string> report();
  std::string name_of(size_t rank) const;
  int stage_of(size_t rank) const;

  Options options_;
  std::vector<Rank> ranks_;
  int64_t steps_ = 0;  // since the last report
};

}  // namespace shale::models
