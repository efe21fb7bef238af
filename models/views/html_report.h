#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "shale/models/views/run_data.h"

namespace shale::models {

// Returns one HTML page about the runs, with overlaid curves and a list of differing options. The
// page is self-contained: it includes style and pictures, has no scripts, and loads nothing. It
// follows the reader's choice of light or dark mode, can be printed, and describes its pictures in
// words.
std::string html_report(std::span<const RunData> runs);

// Returns the first step at which the losses of both runs are known and differ in any bit; nullopt
// if there is none.
std::optional<int64_t> first_difference(const RunData& a, const RunData& b);

}  // namespace shale::models
