#include "shale/models/views/html_report.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <map>
#include <set>
#include <string_view>

#include "shale/base/text.h"
#include "shale/models/views/chart.h"
#include "shale/models/views/curve.h"

namespace shale::models {
namespace {

// Colours that are distinguishable with red-green colour blindness (Okabe and Ito), darker on white
// and lighter on black, with the contrast required for text.
constexpr std::string_view kStyle = R"(
:root { color-scheme: light dark; --page: #fff; --text: #1b1b1b; --soft: #595959; --grid: #ddd;
  --run0: #0067a5; --run1: #b34700; --run2: #00785a; --run3: #9c4a7c; --run4: #7a6000;
  --run5: #444; --bad: #b00020; }
@media (prefers-color-scheme: dark) { :root { --page: #151515; --text: #eee; --soft: #aaa;
  --grid: #3a3a3a; --run0: #56b4e9; --run1: #f0904a; --run2: #2fc79c; --run3: #dc9cc4;
  --run4: #e6d14a; --run5: #bbb; --bad: #ff8a8a; } }
body { background: var(--page); color: var(--text); font: 16px/1.5 sans-serif; margin: 0; }
main { max-width: 60rem; margin: 0 auto; padding: 1rem; overflow-wrap: anywhere; }
h1, h2 { line-height: 1.2; } h2 { margin-top: 2rem; }
figure { margin: 1rem 0; } svg { width: 100%; height: auto; font: 12px sans-serif; }
svg.key { width: 20px; height: 8px; margin-right: .4rem; vertical-align: middle; }
.legend { list-style: none; margin: 0; padding: 0; display: flex; flex-wrap: wrap; gap: 0 1.2rem;
  font-size: .85rem; color: var(--soft); }
svg text { fill: var(--soft); } svg .grid { stroke: var(--grid); fill: none; }
svg .line { fill: none; stroke-width: 1.6; } svg .faint { fill: none; opacity: .35; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; }
th, td { border-bottom: 1px solid var(--grid); padding: .2rem .8rem .2rem 0; text-align: left;
  vertical-align: top; overflow-wrap: normal; max-width: 30rem; }
thead th { vertical-align: bottom; } tbody th { font-weight: normal; white-space: nowrap; }
.whole { white-space: nowrap; }
td.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td.long { overflow-wrap: anywhere; min-width: 10rem; }
.error { color: var(--bad); }
pre { white-space: pre-wrap; border-left: 3px solid var(--grid); margin: 0; padding: .2rem .8rem;
  font: 14px/1.4 monospace; }
@media print { :root { --page: #fff; --text: #000; --soft: #333; --grid: #bbb; }
  figure, tr { break-inside: avoid; } details { display: block; }
  .run1 { stroke-dasharray: 6 3; } .run2 { stroke-dasharray: 2 3; }
  .run3 { stroke-dasharray: 8 3 2 3; } }
)";

constexpr std::array kStateWords = {"running, or killed", "saved, to go on", "done", "failed"};

std::string style() {
  std::string text(kStyle);
  for (int run = 0; run < 6; ++run) {
    text += cat("path.run", run, " { stroke: var(--run", run, "); } circle.run", run,
                " { fill: var(--run", run, "); }\n");
  }
  return text;
}

using Row = std::vector<std::string>;  // a row of cells in HTML

std::string table(std::string_view caption, const Row& head, const std::vector<Row>& rows) {
  std::string html = cat("<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"",
                         caption, "\"><table><caption hidden>", caption, "</caption>\n<thead><tr>");
  for (const std::string& cell : head) html += cat("<th scope=\"col\">", cell, "</th>");
  html += "</tr></thead>\n<tbody>\n";
  for (const Row& row : rows) {
    html += cat("<tr><th scope=\"row\">", row.front(), "</th>");
    for (size_t i = 1; i < row.size(); ++i) {
      const bool is_number = !row[i].empty() && row[i].front() >= '0' && row[i].front() <= '9';
      const bool is_long = row[i].size() > 24;
      html += cat(is_long     ? "<td class=\"long\">"
                  : is_number ? "<td class=\"number\">"
                              : "<td>",
                  row[i], "</td>");
    }
    html += "</tr>\n";
  }
  return html + "</tbody></table></div>\n";
}

std::string number_or_dash(const CurvePoints& points, double (*pick)(const CurvePoints&)) {
  return points.empty() ? "–" : format_number(pick(points));
}

double last_of(const CurvePoints& points) {
  return points.back().value;
}
double least_of(const CurvePoints& points) {
  return std::min_element(points.begin(), points.end(),
                          [](const auto& a, const auto& b) { return a.value < b.value; })
      ->value;
}
double median_of(const CurvePoints& points) {
  std::vector<double> values;
  for (const CurvePoint& point : points) values.push_back(point.value);
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

std::string state_of(const RunData& run) {
  if (!run.status) return "no status.json";
  const RunStatus& status = *run.status;
  std::string text = kStateWords[static_cast<size_t>(status.state)];
  if (status.exit_code) text += cat(", exit code ", *status.exit_code);
  text = cat("<span class=\"whole\">", escaped_html(text), "</span>");
  if (!status.message.empty()) {
    text += cat("<br><span class=\"error\">", escaped_html(status.message), "</span>");
  }
  return text;
}

std::string bytes_or_dash(const CurvePoints& points) {
  return points.empty() ? "–" : format_bytes(points.back().value);
}

// Returns the unit that the runs count: "tokens".
std::string items_of(std::span<const RunData> runs) {
  return runs.front().steps.empty() ? "items" : runs.front().steps.back().item;
}

std::string summary(std::span<const RunData> runs) {
  std::vector<Row> rows;
  for (const RunData& run : runs) {
    const auto has_checkpoint = run.status && run.status->checkpoint_step;
    const size_t restarts = run.starts.empty() ? 0 : run.starts.size() - 1;
    rows.push_back(
        {escaped_html(run.name), state_of(run),
         run.steps.empty() ? "0" : std::to_string(run.steps.back().step),
         number_or_dash(loss_curve(run), last_of), number_or_dash(validation_curve(run), least_of),
         number_or_dash(curve_of(run, &StepMetrics::items_per_s), median_of),
         number_or_dash(curve_of(run, &StepMetrics::step_ms), median_of),
         bytes_or_dash(curve_of(run, &StepMetrics::device_peak_bytes)),
         has_checkpoint ? cat("step ", *run.status->checkpoint_step) : "–",
         run.starts.empty() ? "–" : std::to_string(restarts),
         std::to_string(run.warnings.size() + static_cast<size_t>(run.warnings_left_out))});
  }
  return table("Runs",
               {"Run", "State", "Steps", "Last loss", "Least validation loss",
                cat("Median ", escaped_html(items_of(runs)), " per s"), "Median step, ms",
                "Peak device memory", "Checkpoint", "Restarts", "Warnings"},
               rows);
}

std::string figure(const Chart& chart) {
  const std::string svg = svg_of(chart);
  if (svg.empty()) return {};
  return cat("<h2>", escaped_html(chart.title), "</h2>\n<figure>\n", legend_of(chart), svg,
             "</figure>\n");
}

std::string label_of(const RunData& run, size_t runs, std::string_view what) {
  return runs > 1 ? cat(run.name, what.empty() ? "" : " ", what) : std::string(what);
}

// Returns the decay for smoothed() that averages about a hundredth of the points on each side.
double decay_for(const CurvePoints& points) {
  return 1 - 1 / std::max(1.0, static_cast<double>(points.size()) / 100);
}

std::string loss_figures(std::span<const RunData> runs) {
  Chart chart{.title = "Loss", .unit = "mean over the global batch"};
  for (size_t i = 0; i < runs.size(); ++i) {
    using Kind = ChartCurve::Kind;
    const CurvePoints raw = loss_curve(runs[i]);
    chart.curves.push_back({.run = i, .kind = Kind::kFaint, .points = raw});
    chart.curves.push_back({.label = label_of(runs[i], runs.size(), "training, smoothed"),
                            .run = i,
                            .points = smoothed(raw, decay_for(raw))});
    chart.curves.push_back({.label = label_of(runs[i], runs.size(), "validation"),
                            .run = i,
                            .kind = Kind::kDots,
                            .points = validation_curve(runs[i])});
  }
  std::string html = figure(chart);
  chart.title = "Loss, logarithmic";
  chart.is_logarithmic = true;
  return html + cat("<details><summary>The same on a logarithmic axis</summary>", figure(chart),
                    "</details>\n");
}

// How to draw one column of the metrics.
struct ColumnFigure {
  std::string title;
  std::string unit;
  double scale = 1;       // factor from the column's unit to the unit in the chart
  bool is_noisy = false;  // draw the curve smoothed, and the original faintly
};

template <typename Column>
std::string column_figure(std::span<const RunData> runs, const ColumnFigure& about, Column column) {
  Chart chart{.title = about.title, .unit = about.unit};
  std::vector<ChartCurve> lines;
  for (size_t i = 0; i < runs.size(); ++i) {
    CurvePoints points = curve_of(runs[i], column);
    for (CurvePoint& point : points) point.value *= about.scale;
    if (about.is_noisy) {
      chart.curves.push_back({.run = i, .kind = ChartCurve::Kind::kFaint, .points = points});
      points = smoothed(points, decay_for(points));
    }
    lines.push_back({.label = label_of(runs[i], runs.size(), runs.size() > 1 ? "" : about.title),
                     .run = i,
                     .points = std::move(points)});
  }
  for (ChartCurve& line : lines) chart.curves.push_back(std::move(line));
  return figure(chart);
}

std::string column_figures(std::span<const RunData> runs) {
  constexpr double kMiB = 1.0 / (1 << 20);
  const auto of = [runs](const ColumnFigure& about, auto column) {
    return column_figure(runs, about, column);
  };
  return cat(
      of({.title = "Learning rate"}, &StepMetrics::lr),
      of({.title = "Gradient norm", .unit = "before clipping", .is_noisy = true},
         &StepMetrics::grad_norm),
      of({.title = "Throughput",
          .unit = items_of(runs) + " per second, all ranks",
          .is_noisy = true},
         &StepMetrics::items_per_s),
      of({.title = "Model FLOP utilization", .unit = "percent", .scale = 100, .is_noisy = true},
         &StepMetrics::mfu),
      of({.title = "Time of a step", .unit = "ms", .is_noisy = true}, &StepMetrics::step_ms),
      of({.title = "Exposed communication", .unit = "ms of a step, rank 0", .is_noisy = true},
         &StepMetrics::comm_exposed_ms),
      of({.title = "Peak device memory", .unit = "MiB, rank 0", .scale = kMiB},
         &StepMetrics::device_peak_bytes),
      of({.title = "Peak host memory", .unit = "MiB, rank 0", .scale = kMiB},
         &StepMetrics::host_peak_bytes),
      of({.title = "Loss scale"}, &StepMetrics::loss_scale),
      of({.title = "Skipped steps", .unit = "so far"}, &StepMetrics::skipped_steps));
}

// Lists the starts of the run, with their steps, and its checkpoints.
std::string starts_table(const RunData& run) {
  if (run.starts.empty() && run.checkpoints.empty()) return {};
  std::string html = cat("<h2>Starts and checkpoints of ", escaped_html(run.name), "</h2>\n");
  std::vector<Row> rows;
  for (const RunStart& start : run.starts) {
    rows.push_back({escaped_html(start.time),
                    start.step == 0 ? "the beginning" : cat("step ", start.step),
                    std::to_string(start.ranks)});
  }
  if (!rows.empty()) html += table("Starts", {"Started", "From", "Ranks"}, rows);
  std::string steps;
  for (const int64_t step : run.checkpoints) steps += cat(steps.empty() ? "" : ", ", step);
  return cat(html, "<p>Checkpoints: ", steps.empty() ? "none" : cat("of steps ", steps), ".</p>\n");
}

// Tabulates the newest row of metrics about all ranks.
std::string ranks_table(const RunData& run) {
  if (run.ranks.empty()) return {};
  const RanksMetrics& all = run.ranks.back();
  std::vector<Row> rows;
  for (const auto& [name, spread] : all.figures) {
    if (!spread) continue;
    const bool is_bytes = name.ends_with("_bytes");
    const auto shown = [&](double value) {
      return is_bytes ? format_bytes(value) : format_number(value);
    };
    rows.push_back({escaped_html(name), shown(spread->least), std::to_string(spread->least_rank),
                    shown(spread->median), shown(spread->most), std::to_string(spread->most_rank)});
  }
  if (rows.empty()) return {};
  return cat("<h2>Ranks of ", escaped_html(run.name), "</h2>\n<p>", all.ranks, " ranks, at step ",
             all.step, ".</p>\n",
             table("Ranks", {"Figure", "Least", "of rank", "Median", "Most", "of rank"}, rows));
}

std::string warnings_table(const RunData& run) {
  if (run.warnings.empty() && run.warnings_unreadable == 0) return {};
  std::vector<Row> rows;
  for (const RunWarning& warning : run.warnings) {
    const bool is_error = warning.level == "error";
    rows.push_back({escaped_html(warning.time), std::to_string(warning.rank),
                    cat(is_error ? "<span class=\"error\">" : "<span>", escaped_html(warning.level),
                        "</span>"),
                    escaped_html(warning.text)});
  }
  return cat("<h2>Warnings of ", escaped_html(run.name), "</h2>\n",
             run.warnings_left_out > 0
                 ? cat("<p>", run.warnings_left_out, " older ones are in ", "warnings.jsonl.</p>\n")
                 : std::string(),
             run.warnings_unreadable > 0
                 ? cat("<p>", run.warnings_unreadable, " lines are not readable.</p>\n")
                 : std::string(),
             table("Warnings", {"Time", "Rank", "Level", "Text"}, rows));
}

// Returns the newest generated texts, the newest first.
std::string samples_of(const RunData& run) {
  constexpr size_t kMost = 20;
  if (run.samples.empty()) return {};
  std::string html = cat("<h2>Samples of ", escaped_html(run.name), "</h2>\n");
  const size_t left_out = run.samples.size() > kMost ? run.samples.size() - kMost : 0;
  for (size_t i = run.samples.size(); i > left_out; --i) {
    const Sample& sample = run.samples[i - 1];
    html += cat("<h3>", escaped_html(sample.tag), ", step ", sample.step, "</h3>\n<pre>",
                escaped_html(sample.text), "</pre>\n");
  }
  return left_out == 0 ? html
                       : cat(html, "<p>", left_out, " older ones are in samples.jsonl.</p>\n");
}

using Options = std::map<std::string, std::string>;

// Tabulates the options of all runs. differing: only the options that differ.
std::string options_table(std::span<const RunData> runs, bool differing) {
  std::vector<Options> options;
  std::set<std::string> names;
  Row head = {"Option"};
  for (const RunData& run : runs) {
    options.emplace_back(run.options.begin(), run.options.end());
    for (const auto& [name, value] : run.options) names.insert(name);
    head.push_back(escaped_html(run.name));
  }
  std::vector<Row> rows;
  for (const std::string& name : names) {
    Row row = {escaped_html(name)};
    std::set<std::string> values;
    for (const Options& held : options) {
      const auto it = held.find(name);
      const std::string value = it == held.end() ? "–" : it->second;
      values.insert(value);
      row.push_back(escaped_html(value));
    }
    if (!differing || values.size() > 1) rows.push_back(row);
  }
  if (rows.empty()) return differing ? "<p>All options are the same.</p>\n" : std::string();
  return table(differing ? "Options that differ" : "Options", head, rows);
}

std::string differences(std::span<const RunData> runs) {
  if (runs.size() < 2) return {};
  std::string html = "<h2>Differences</h2>\n<ul>\n";
  for (const RunData& run : runs.subspan(1)) {
    const auto step = first_difference(runs.front(), run);
    html += cat("<li>", escaped_html(runs.front().name), " and ", escaped_html(run.name), ": ",
                step ? cat("losses differ from step ", *step, " on")
                     : std::string("all losses that both have are the same to the bit"),
                ".</li>\n");
  }
  return cat(html, "</ul>\n", options_table(runs, true));
}

}  // namespace

std::optional<int64_t> first_difference(const RunData& a, const RunData& b) {
  auto other = b.steps.begin();
  for (const StepMetrics& row : a.steps) {
    while (other != b.steps.end() && other->step < row.step) ++other;
    if (other == b.steps.end()) break;
    if (other->step != row.step) continue;
    if (std::bit_cast<uint32_t>(row.loss) != std::bit_cast<uint32_t>(other->loss)) return row.step;
  }
  return std::nullopt;
}

std::string html_report(std::span<const RunData> runs) {
  std::string names;
  for (const RunData& run : runs) names += cat(names.empty() ? "" : ", ", run.name);
  std::string html =
      cat("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n",
          "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>",
          escaped_html(names), " - Shale</title>\n<style>", style(), "</style>\n</head>\n<body>\n",
          "<main>\n<h1>", escaped_html(names), "</h1>\n", summary(runs), differences(runs),
          loss_figures(runs), column_figures(runs));
  for (const RunData& run : runs) html += samples_of(run);
  for (const RunData& run : runs) html += starts_table(run);
  for (const RunData& run : runs) html += ranks_table(run) + warnings_table(run);
  const std::string options = options_table(runs, false);
  if (!options.empty()) {
    html +=
        cat("<h2>Options</h2>\n<details><summary>All options</summary>\n", options, "</details>\n");
  }
  return html + "</main>\n</body>\n</html>\n";
}

}  // namespace shale::models
