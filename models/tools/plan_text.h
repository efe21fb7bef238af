#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "shale/models/plan/time/layout_search.h"
#include "shale/models/tools/plan_fit.h"

namespace shale::models {

// Texts that `shale plan` prints.

std::string bytes_text(int64_t bytes);  // Returns "-" for 0 bytes.
std::string padded(std::string_view text, size_t width);
inline constexpr size_t kCellWidth = 13;  // width of a column of bytes or times

// Describes the peak of a rank, and the memory in use at the peak by unit (in the model's order)
// and tag. With `explains`, also lists the largest allocations.
std::string describe(const PlannedRank& rank, const std::vector<Module*>& units, bool explains);
// Returns a table of the fastest layouts, and counts of the remaining layouts. most_bytes: memory
// of a device; 0: unknown.
std::string describe(const FoundLayouts& found, int64_t most_bytes);

// Size of a whole run, and the price of a device hour. describe() states the items per day; it adds
// days and cost if `items` and `price` are known.
struct RunSize {
  double items = 0;  // tokens or samples; 0: unknown
  double price = 0;  // dollars per device hour; 0: unknown
};
std::string describe(const PlannedStep& step, const RunSize& run, const Cluster& cluster,
                     const SampleUnit& unit, int ranks);

// Returns a row of the table that compares clusters. step: null: returns the table's title row.
std::string cluster_row(const Cluster* cluster, const PlannedStep* step, const PlanFit* fit,
                        const RunSize& run, int ranks);

// Parses a number of items with a suffix: "15T", "300B", "1.5M", "2k". Throws ConfigError.
double parse_items(const std::string& text);

}  // namespace shale::models
