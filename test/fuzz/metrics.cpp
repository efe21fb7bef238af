#include "shale/models/training/report/metrics.h"

#include <algorithm>
#include <cmath>

#include "shale/base/json.h"
#include "shale/models/views/run_data.h"
#include "shale/models/views/run_page.h"
#include "shale/models/views/watch_screen.h"
#include "shale/test/fuzz/fuzz.h"

namespace {

using namespace shale;

std::string text_of(const std::vector<MetricsRow>& rows) {
  std::string text;
  for (const MetricsRow& row : rows) text += to_json_line(row);
  return text;
}

void draw_screens(const models::RunData& run) {
  constexpr int kSizes[][2] = {{0, 0},  {1, 1},   {2, 60},
                               {13, 7}, {80, 24}, {1000, 2}};  // columns, rows
  for (const auto& [columns, rows] : kSizes) {
    for (const auto& [key, column] : run.columns) {
      const auto plot = models::braille_plot(models::curve_of(column), columns, rows);
      fuzz::require(plot.size() == static_cast<size_t>(rows), "a plot has its rows");
    }
    const auto screen = models::watch_screen(run, {.columns = columns, .rows = rows});
    fuzz::require(screen.size() <= static_cast<size_t>(rows), "a screen fits its terminal");
    for (const std::string& line : screen) {
      fuzz::require(std::none_of(line.begin(), line.end(),
                                 [](char c) { return static_cast<unsigned char>(c) < 0x20; }),
                    "a screen has no control characters");
    }
  }
}

// Reads the text as shale report and watch do, and shows it.
void show(std::string_view text) {
  models::RunData run{.name = "run"};
  for (size_t end = text.find('\n'); end != text.npos; end = text.find('\n')) {
    models::add_metrics_row(run, text.substr(0, end), "metrics.jsonl");
    text.remove_prefix(end + 1);
  }
  draw_screens(run);
  for (const auto& [key, column] : run.columns) {
    for (const models::CurvePoint& point : models::smoothed(models::curve_of(column))) {
      fuzz::require(std::isfinite(point.value), "a smoothed curve is finite");
    }
  }
  fuzz::require(!models::first_difference(run, run), "a run does not differ from itself");
  const std::string feed = models::run_feed(std::span(&run, 1));
  fuzz::require(feed.size() < 1 << 20, "a feed is small");
  Json::parse(feed, {.max_bytes = 1 << 24}, "feed");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = fuzz::text_of(data, size);
  fuzz::accepts<DataError>([&] { show(text); });
  fuzz::accepts<DataError>([&] { models::csv_of_metrics(text, "m"); });
  std::vector<MetricsRow> rows;
  if (!fuzz::accepts<DataError>([&] { rows = parse_metrics(text, "metrics.jsonl"); })) return 0;
  // Printing rounds numbers, so the first text may change when it is read and printed again, but
  // the second must not.
  const std::string once = text_of(parse_metrics(text_of(rows), "once"));
  fuzz::require(text_of(parse_metrics(once, "twice")) == once,
                "rows read back as they are written");
  show(once);
  return 0;
}
