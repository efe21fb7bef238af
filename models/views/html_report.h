#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "shale/models/views/run_data.h"

namespace shale::models {

// One HTML page about the runs, which draws them over each other and lists in what they differ. The
// page is whole: it has its style and pictures in it, no scripts, and asks no network for anything.
// It follows the reader's choice of light or dark, can be printed, and says in words what its
// pictures show.
std::string html_report(std::span<const RunData> runs);

// The first step of which both runs know the loss, and whose losses differ in a bit; nullopt if
// there is none.
std::optional<int64_t> first_difference(const RunData& a, const RunData& b);

}  // namespace shale::models
