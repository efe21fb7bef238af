#pragma once

#include <string>
#include <vector>

#include "shale/models/views/curve.h"

namespace shale::models {

// A curve of a chart. The page's style sheet defines its look.
struct ChartCurve {
  std::string label;  // text in the legend; empty: not listed
  size_t run = 0;     // index of its run, which selects the colour: class "run0" to "run5"
  enum class Kind { kLine, kFaint, kDots } kind = Kind::kLine;
  CurvePoints points;
};

struct Chart {
  std::string title;
  std::string unit;             // unit of the values, shown at the axis
  bool is_logarithmic = false;  // logarithmic scale; omits values that are not positive
  std::vector<ChartCurve> curves;
};

// Returns the chart as an SVG element for an HTML page: axes, marks, curves, and for screen readers
// a title and a description. Empty if no curve has a point.
std::string svg_of(const Chart& chart);
// Returns the legend as an HTML list. Empty if there are fewer than two labels.
std::string legend_of(const Chart& chart);

// Escapes HTML: "&lt;" for "<" and so on. `text` must be valid UTF-8.
std::string escaped_html(std::string_view text);

}  // namespace shale::models
