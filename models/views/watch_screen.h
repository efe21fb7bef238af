#pragma once

#include <string>
#include <vector>

#include "shale/models/views/curve.h"
#include "shale/models/views/run_data.h"

namespace shale::models {

// Plots a curve in text, straight lines between its points, with 2 x 4 dots per character (Unicode
// Braille patterns), and `marks` as the letter o over it: returns `rows` strings of `columns`
// characters, blank if there are no points. The minimum and the maximum touch the edges; a single
// value is in the middle. Steps may have any order.
std::vector<std::string> braille_plot(const CurvePoints& points, int columns, int rows,
                                      const CurvePoints& marks = {});

// Capabilities of a terminal.
struct Terminal {
  int columns = 80;
  int rows = 24;
  bool has_color = false;
};

// Renders a run as lines that fit the terminal's width and height: state, newest figures, curves of
// loss with validations, gradient norm and throughput, ranks, newest warnings.
std::vector<std::string> watch_screen(const RunData& run, const Terminal& terminal);

}  // namespace shale::models
