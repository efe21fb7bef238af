#pragma once

#include <string>
#include <vector>

#include "shale/models/views/curve.h"
#include "shale/models/views/run_data.h"

namespace shale::models {

// Plots a curve in text, with straight lines between its points and 2 x 4 dots per character
// (Unicode Braille patterns). Draws `marks` over it, as the letter o. Returns `rows` strings of
// `columns` characters, blank if there are no points. Minimum and maximum are at the edges; a
// single value is in the middle. Steps may have any order.
std::vector<std::string> braille_plot(const CurvePoints& points, int columns, int rows,
                                      const CurvePoints& marks = {});

// Capabilities of a terminal.
struct Terminal {
  int columns = 80;
  int rows = 24;
  bool has_color = false;
};

// Renders a run as lines that fit the terminal's width and height: state, newest values, curves
// (loss with validations, gradient norm, throughput), ranks, newest warnings.
std::vector<std::string> watch_screen(const RunData& run, const Terminal& terminal);

}  // namespace shale::models
