#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "shale/models/views/run_data.h"

namespace shale::models {

// Returns one JSON document that describes the runs (docs/reference/metrics.md, "The JSON feed").
std::string run_feed(std::span<const RunData> runs);

// Returns the HTML page that draws a feed (models/views/page). It loads nothing from other sites.
// feed: document to draw; empty: the page requests "feed.json" from its server again and again.
std::string run_page(std::string_view feed);

// Returns the first step at which the losses of both runs are known and differ in any bit; nullopt
// if there is none.
std::optional<int64_t> first_difference(const RunData& a, const RunData& b);

}  // namespace shale::models
