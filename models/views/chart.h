#pragma once

#include <string>
#include <vector>

#include "shale/models/views/curve.h"

namespace shale::models {

// A curve of a chart. The look comes from the page's style sheet.
struct ChartCurve {
  std::string label;  // for the legend; empty: none
  size_t run = 0;     // whose it is, which decides its colour: class "run0" to "run5"
  enum class Kind { kLine, kFaint, kDots } kind = Kind::kLine;
  CurvePoints points;
};

struct Chart {
  std::string title;
  std::string unit;             // of the values, as the axis says it
  bool is_logarithmic = false;  // values that are not positive are left out
  std::vector<ChartCurve> curves;
};

// The chart as an SVG element for an HTML page: axes, marks, curves, and for those who cannot see
// it a title and a description in words. Empty if no curve has a point.
std::string svg_of(const Chart& chart);
// Its legend, a list for an HTML page, which breaks lines as text does. Empty if there are not two
// labels to tell apart.
std::string legend_of(const Chart& chart);

// "&lt;" for "<" and so on; bytes that are no UTF-8 must not be in `text`.
std::string escaped_html(std::string_view text);

}  // namespace shale::models
