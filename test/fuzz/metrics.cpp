#include "shale/models/training/report/metrics.h"

#include <algorithm>

#include "shale/models/views/chart.h"
#include "shale/models/views/html_report.h"
#include "shale/models/views/run_data.h"
#include "shale/models/views/watch_screen.h"
#include "shale/test/fuzz/fuzz.h"

namespace {

using namespace shale;

std::string text_of(const std::vector<MetricsRow>& rows) {
  std::string text;
  for (const MetricsRow& row : rows) text += to_json_line(row);
  return text;
}

void draw_screens(const models::RunData& run, const models::CurvePoints& points) {
  constexpr int kSizes[][2] = {{0, 0},  {1, 1},   {2, 60},
                               {13, 7}, {80, 24}, {1000, 2}};  // columns, rows
  for (const auto& [columns, rows] : kSizes) {
    const auto plot = models::braille_plot(points, columns, rows);
    fuzz::require(plot.size() == static_cast<size_t>(rows), "a plot has its rows");
    const auto screen = models::watch_screen(run, {.columns = columns, .rows = rows});
    fuzz::require(screen.size() <= static_cast<size_t>(rows), "a screen fits its terminal");
    for (const std::string& line : screen) {
      fuzz::require(std::none_of(line.begin(), line.end(),
                                 [](char c) { return static_cast<unsigned char>(c) < 0x20; }),
                    "a screen has no control characters");
    }
  }
}

void draw_charts(const models::CurvePoints& points) {
  for (const bool is_logarithmic : {false, true}) {
    const std::string svg = models::svg_of(
        {.title = "t", .is_logarithmic = is_logarithmic, .curves = {{.points = points}}});
    fuzz::require(svg.find("nan") == svg.npos && svg.find("inf") == svg.npos,
                  "coordinates are finite");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::vector<MetricsRow> rows;
  const auto parse = [&] { rows = parse_metrics(fuzz::text_of(data, size), "metrics.jsonl"); };
  if (!fuzz::accepts<DataError>(parse)) return 0;
  // Printing rounds numbers, so only the second text must be stable.
  const std::string once = text_of(parse_metrics(text_of(rows), "once"));
  fuzz::require(text_of(parse_metrics(once, "twice")) == once,
                "rows read back as they are written");

  models::CurvePoints as_read;  // points in file order, including NaN
  for (const MetricsRow& row : rows) {
    if (const auto* step = std::get_if<StepMetrics>(&row)) {
      as_read.push_back({step->step, step->grad_norm.value_or(step->loss)});
    }
  }
  const models::RunData run = models::run_of(rows);
  draw_screens(run, as_read);
  for (const models::CurvePoints& points : {models::loss_curve(run), models::validation_curve(run),
                                            models::curve_of(run, &StepMetrics::grad_norm)}) {
    draw_charts(points);
  }
  fuzz::require(!models::first_difference(run, run), "a run does not differ from itself");
  fuzz::require(models::html_report(std::span(&run, 1)).size() < 1 << 20, "a report is small");
  fuzz::accepts<DataError>([&] { models::csv_of_metrics(fuzz::text_of(data, size), "m"); });
  return 0;
}
