#include "shale/models/views/chart.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <set>
#include <string_view>

#include "shale/base/text.h"

namespace shale::models {
namespace {

// Size of the drawing in SVG units; the page scales it.
constexpr double kLeft = 64, kTop = 30, kWidth = 640, kHeight = 240;
constexpr double kRight = 16, kBottom = 42;
constexpr size_t kBuckets = 480;  // a curve with more points is reduced to two points per bucket
constexpr size_t kColors = 6;

std::string printed(const char* format, double value) {
  std::array<char, 32> buffer{};
  std::snprintf(buffer.data(), buffer.size(), format, value);
  return buffer.data();
}

std::string coordinate(double value) {
  return printed("%.1f", value);
}

// Range of steps and values that the chart shows.
struct Frame {
  double first = 0, last = 0;  // range of steps
  double low = 0, high = 0;    // range of values, or of their logarithms
  bool is_logarithmic = false;

  double height_of(double value) const { return is_logarithmic ? std::log10(value) : value; }
  double x(double step) const { return kLeft + position_in(step, first, last) * kWidth; }
  double y(double height) const { return kTop + (1 - position_in(height, low, high)) * kHeight; }
};

Chart drawable(Chart chart) {
  for (ChartCurve& curve : chart.curves) {
    if (chart.is_logarithmic) {
      std::erase_if(curve.points, [](const CurvePoint& point) { return point.value <= 0; });
    }
  }
  std::erase_if(chart.curves, [](const ChartCurve& curve) { return curve.points.empty(); });
  return chart;
}

Frame frame_of(const Chart& chart) {
  const CurvePoint any = chart.curves.front().points.front();
  Frame frame{.is_logarithmic = chart.is_logarithmic};
  frame.first = frame.last = static_cast<double>(any.step);
  frame.low = frame.high = frame.height_of(any.value);
  for (const ChartCurve& curve : chart.curves) {
    for (const CurvePoint& point : curve.points) {
      frame.first = std::min(frame.first, static_cast<double>(point.step));
      frame.last = std::max(frame.last, static_cast<double>(point.step));
      frame.low = std::min(frame.low, frame.height_of(point.value));
      frame.high = std::max(frame.high, frame.height_of(point.value));
    }
  }
  if (frame.first == frame.last) frame.last = frame.first + 1;
  // Widens the range, so that a constant curve has a scale with different marks too.
  const double range = frame.high - frame.low;
  const double room = range > 0 ? 0.04 * range : std::max(0.1 * std::abs(frame.high), 1e-6);
  frame.low -= room;
  frame.high += room;
  return frame;
}

std::string text_at(double x, double y, std::string_view anchor, std::string_view text) {
  return cat("<text x=\"", coordinate(x), "\" y=\"", coordinate(y), "\" text-anchor=\"", anchor,
             "\">", escaped_html(text), "</text>\n");
}

std::string axes(const Frame& frame, const std::string& unit) {
  std::string svg;
  const auto line = [&svg](double x1, double y1, double x2, double y2) {
    svg += cat("<path class=\"grid\" d=\"M", coordinate(x1), " ", coordinate(y1), "L",
               coordinate(x2), " ", coordinate(y2), "\"/>\n");
  };
  for (const double mark : axis_marks(frame.low, frame.high)) {
    line(kLeft, frame.y(mark), kLeft + kWidth, frame.y(mark));
    const double value = frame.is_logarithmic ? std::pow(10, mark) : mark;
    svg += text_at(kLeft - 6, frame.y(mark) + 4, "end", format_number(value));
  }
  for (const double mark : axis_marks(frame.first, frame.last)) {
    if (mark != std::floor(mark)) continue;  // skips fractions, because steps are integers
    line(frame.x(mark), kTop, frame.x(mark), kTop + kHeight);
    svg += text_at(frame.x(mark), kTop + kHeight + 16, "middle", printed("%.0f", mark));
  }
  svg += text_at(kLeft + kWidth, kTop + kHeight + 34, "end", "step");
  return svg + text_at(kLeft, kTop - 10, "start", unit);
}

std::string drawn(const ChartCurve& curve, const Frame& frame) {
  const std::string run = cat("run", curve.run % kColors);
  std::string svg;
  if (curve.kind == ChartCurve::Kind::kDots) {
    for (const CurvePoint& point : thinned(curve.points, kBuckets)) {
      svg += cat("<circle class=\"", run, "\" r=\"3\" cx=\"",
                 coordinate(frame.x(static_cast<double>(point.step))), "\" cy=\"",
                 coordinate(frame.y(frame.height_of(point.value))), "\"/>\n");
    }
    return svg;
  }
  const bool is_faint = curve.kind == ChartCurve::Kind::kFaint;
  svg = cat("<path class=\"", is_faint ? "faint " : "line ", run, "\" d=\"");
  std::string_view command = "M";
  for (const CurvePoint& point : thinned(curve.points, kBuckets)) {
    svg += cat(command, coordinate(frame.x(static_cast<double>(point.step))), " ",
               coordinate(frame.y(frame.height_of(point.value))));
    command = "L";
  }
  return svg + "\"/>\n";
}

// Returns the sample of a curve's line style, for the legend.
std::string key_of(const ChartCurve& curve) {
  const std::string run = cat("run", curve.run % kColors);
  const bool has_dots = curve.kind == ChartCurve::Kind::kDots;
  return cat("<svg class=\"key\" aria-hidden=\"true\" viewBox=\"0 0 20 8\">",
             has_dots ? cat("<circle class=\"", run, "\" r=\"3\" cx=\"10\" cy=\"4\"/>")
                      : cat("<path class=\"line ", run, "\" d=\"M0 4h20\"/>"),
             "</svg>");
}

// Describes the curves in words.
std::string description(const Chart& chart) {
  std::string text;
  for (const ChartCurve& curve : chart.curves) {
    if (curve.label.empty()) continue;
    const auto by_value = [](const CurvePoint& a, const CurvePoint& b) {
      return a.value < b.value;
    };
    const auto [least, most] =
        std::minmax_element(curve.points.begin(), curve.points.end(), by_value);
    const CurvePoint &first = curve.points.front(), &last = curve.points.back();
    text += cat(text.empty() ? "" : " ", curve.label, ": ", format_number(first.value), " at step ",
                first.step, ", ", format_number(last.value), " at step ", last.step, ", least ",
                format_number(least->value), ", most ", format_number(most->value), ".");
  }
  return text;
}

}  // namespace

std::string escaped_html(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&': escaped += "&amp;"; break;
      case '<': escaped += "&lt;"; break;
      case '>': escaped += "&gt;"; break;
      case '"': escaped += "&quot;"; break;
      default: escaped += c;
    }
  }
  return escaped;
}

std::string svg_of(const Chart& whole) {
  const Chart chart = drawable(whole);
  if (chart.curves.empty()) return {};
  const Frame frame = frame_of(chart);
  std::string svg =
      cat("<svg role=\"img\" viewBox=\"0 0 ", kLeft + kWidth + kRight, " ",
          kTop + kHeight + kBottom, "\">\n<title>", escaped_html(chart.title), "</title>\n<desc>",
          escaped_html(description(chart)), "</desc>\n", axes(frame, chart.unit));
  for (const ChartCurve& curve : chart.curves) svg += drawn(curve, frame);
  return svg + "</svg>\n";
}

std::string legend_of(const Chart& whole) {
  const Chart chart = drawable(whole);
  std::string items;
  std::set<std::string> labels;
  for (const ChartCurve& curve : chart.curves) {
    if (curve.label.empty()) continue;
    labels.insert(curve.label);
    items += cat("<li>", key_of(curve), escaped_html(curve.label), "</li>\n");
  }
  return labels.size() < 2 ? std::string() : cat("<ul class=\"legend\">\n", items, "</ul>\n");
}

}  // namespace shale::models
