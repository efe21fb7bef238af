#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "shale/models/plan/time/layout_search.h"
#include "shale/models/tools/plan_fit.h"

namespace shale::models {

// Text of `shale plan`.

std::string bytes_text(int64_t bytes);  // "-" for none
std::string padded(std::string_view text, size_t width);
inline constexpr size_t kCellWidth = 13;  // width of a column of bytes or times

// Returns the peak of a rank, the memory in use then by unit in the model's order and by tag, and
// with `explains` the largest allocations.
std::string describe(const PlannedRank& rank, const std::vector<Module*>& units, bool explains);
// Returns a table of the fastest layouts, and counts of all others. most_bytes: memory of a device;
// 0: unknown.
std::string describe(const FoundLayouts& found, int64_t most_bytes);

// Size of a whole run, and the price of a device hour. describe() returns lines with its items a
// day and, for known values, its days and cost.
struct RunSize {
  double items = 0;  // tokens or samples; 0: unknown
  double price = 0;  // 0: unknown
};
std::string describe(const PlannedStep& step, const RunSize& run, const Cluster& cluster,
                     const SampleUnit& unit, int ranks);

// Returns a row of a table that compares clusters; without a step, its title.
std::string cluster_row(const Cluster* cluster, const PlannedStep* step, const PlanFit* fit,
                        const RunSize& run, int ranks);

// Parses a number of items with a suffix: "15T", "300B", "1.5M", "2k". Throws ConfigError.
double parse_items(const std::string& text);

}  // namespace shale::models
