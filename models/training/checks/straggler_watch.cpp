#include "shale/models/training/checks/straggler_watch.h"

#include <algorithm>
#include <map>

#include "shale/base/text.h"

namespace shale::models {
namespace {

// Returns the median. For an even number of values, it is the lower of the middle two, so that of
// two ranks the faster one is the reference.
double lower_median(std::span<const double> values) {
  std::vector<double> sorted(values.begin(), values.end());
  const auto middle = sorted.begin() + static_cast<int64_t>((sorted.size() - 1) / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return *middle;
}

int64_t milliseconds(double seconds) {
  return static_cast<int64_t>(seconds * 1e3 + 0.5);
}

}  // namespace

std::vector<std::string> StragglerWatch::look(std::span<const double> busy_s) {
  ranks_.resize(busy_s.size());
  if (busy_s.size() < 2) return {};
  for (size_t r = 0; r < busy_s.size(); ++r) ranks_[r].busy_s += busy_s[r];
  if (++steps_ < options_.steps) return {};
  std::vector<std::string> warnings = report();
  for (Rank& rank : ranks_) rank.busy_s = 0;
  steps_ = 0;
  return warnings;
}

int StragglerWatch::stage_of(size_t rank) const {
  return rank < options_.stages.size() ? options_.stages[rank] : 0;
}

std::string StragglerWatch::name_of(size_t rank) const {
  if (rank >= options_.places.size()) return cat("rank ", rank);
  return cat("rank ", rank, " (", options_.places[rank], ")");
}

std::vector<std::string> StragglerWatch::report() {
  std::vector<std::string> warnings;
  std::vector<double> times;
  std::map<int, std::vector<double>> by_stage;
  for (size_t r = 0; r < ranks_.size(); ++r) {
    times.push_back(ranks_[r].busy_s / static_cast<double>(steps_));
    by_stage[stage_of(r)].push_back(times.back());
  }
  std::map<int, double> medians;
  for (const auto& [stage, of_stage] : by_stage) medians[stage] = lower_median(of_stage);
  for (size_t r = 0; r < ranks_.size(); ++r) {
    Rank& rank = ranks_[r];
    const double median_s = medians[stage_of(r)];
    const double limit_s = std::max(median_s * options_.factor, median_s + options_.least_s);
    rank.slow_reports = times[r] > limit_s ? rank.slow_reports + 1 : 0;
    rank.name_at = std::max(rank.name_at, options_.reports);
    if (rank.slow_reports < rank.name_at) continue;
    warnings.push_back(cat(name_of(r), " holds up the other ranks, for ",
                           rank.slow_reports * steps_, " steps now: in the last ", steps_,
                           " it worked ", milliseconds(times[r]), " ms a step, the median rank ",
                           milliseconds(median_s),
                           " ms; look at what else runs on its host, and at its clocks"));
    rank.name_at *= 10;
  }
  return warnings;
}

}  // namespace shale::models
