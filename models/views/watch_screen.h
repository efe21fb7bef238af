#pragma once

#include <string>
#include <vector>

#include "shale/models/views/curve.h"
#include "shale/models/views/run_data.h"

namespace shale::models {

// A curve in letters, of 2 x 4 dots each (Unicode's Braille patterns): `rows` strings of `columns`
// letters, or as many blanks where there are no points. The least and the most value touch the
// edges; a value alone lies in the middle. Steps may have any order.
std::vector<std::string> braille_plot(const CurvePoints& points, int columns, int rows);

// What a terminal can show.
struct Terminal {
  int columns = 80;
  int rows = 24;
  bool has_color = false;
};

// A run as lines for a terminal, none longer than it is wide, not more than it has rows: state,
// newest figures, curves of loss, gradient norm and throughput, the ranks, the newest warnings.
std::vector<std::string> watch_screen(const RunData& run, const Terminal& terminal);

}  // namespace shale::models
