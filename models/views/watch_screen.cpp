#include "shale/models/views/watch_screen.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "shale/base/parse.h"
#include "shale/base/text.h"

namespace shale::models {
namespace {

constexpr std::string_view kBold = "\x1b[1m", kBlue = "\x1b[34m", kRed = "\x1b[31m",
                           kPlain = "\x1b[0m";
constexpr int kLabelColumns = 12;  // width of the axis labels, left of a curve
constexpr int kMostCells = 1000;   // limit of columns and rows

// Returns U+2800 plus the dots of `bits`, in UTF-8.
std::string braille(unsigned bits) {
  const unsigned code = 0x2800 + bits;
  return {static_cast<char>(0xe0 | code >> 12), static_cast<char>(0x80 | (code >> 6 & 0x3f)),
          static_cast<char>(0x80 | (code & 0x3f))};
}

// Returns the index of the dot at `position`, 0 to 1, in a line of `dots`.
size_t dot_at(double position, double dots) {
  return static_cast<size_t>(std::lround(position * (dots - 1)));
}

// Truncates a line of ASCII to the terminal's width and adds the colour.
std::string line_of(const Terminal& terminal, std::string_view text, std::string_view color = {}) {
  const std::string cut(text.substr(0, static_cast<size_t>(terminal.columns)));
  return terminal.has_color && !color.empty() ? cat(color, cut, kPlain) : cut;
}

std::string left_padded(const std::string& text, size_t width) {
  return cat(std::string(width > text.size() ? width - text.size() : 0, ' '), text);
}

std::string newest(const RunData& run) {
  if (run.steps.empty()) return "no step yet";
  const StepMetrics& row = run.steps.back();
  std::string text = cat("step ", row.step, "  loss ", format_number(double{row.loss}));
  if (!run.evals.empty()) {
    text += cat("  validation ", format_number(double{run.evals.back().val_loss}));
  }
  if (row.lr) text += cat("  lr ", format_number(*row.lr));
  if (row.items_per_s)
    text += cat("  ", format_number(std::round(*row.items_per_s)), " ", row.item, "/s");
  if (row.mfu) text += cat("  mfu ", format_number(std::round(1000 * *row.mfu) / 10), "%");
  if (row.device_peak_bytes) {
    text += cat("  mem ", format_bytes(static_cast<double>(*row.device_peak_bytes)));
  }
  return text;
}

std::string state_text(const RunData& run) {
  constexpr std::array kWords = {"running", "saved", "done", "failed"};
  if (!run.status) return cat(excerpt(run.name), ": no status.json");
  std::string text = cat(excerpt(run.name), ": ", kWords[static_cast<size_t>(run.status->state)]);
  if (run.status->checkpoint_step) text += cat(", checkpoint at ", *run.status->checkpoint_step);
  if (!run.status->message.empty()) text += cat(", ", excerpt(run.status->message, 200));
  return text;
}

void add_curve(std::vector<std::string>& lines, const Terminal& terminal, std::string_view title,
               const CurvePoints& points, int rows) {
  const int columns = terminal.columns - kLabelColumns;
  if (points.empty() || rows < 1 || columns < 1) return;
  const auto [least, most] = std::minmax_element(
      points.begin(), points.end(), [](const auto& a, const auto& b) { return a.value < b.value; });
  lines.push_back(line_of(
      terminal, cat(title, ", steps ", points.front().step, " to ", points.back().step), kBold));
  const std::vector<std::string> plot = braille_plot(points, columns, rows);
  for (int row = 0; row < rows; ++row) {
    const std::string mark = row == 0          ? format_number(most->value)
                             : row == rows - 1 ? format_number(least->value)
                                               : std::string();
    const std::string& dots = plot[static_cast<size_t>(row)];
    lines.push_back(cat(left_padded(mark, kLabelColumns - 1), " ",
                        terminal.has_color ? cat(kBlue, dots, kPlain) : dots));
  }
}

void add_ranks(std::vector<std::string>& lines, const Terminal& terminal, const RunData& run) {
  if (run.ranks.empty()) return;
  const RanksMetrics& all = run.ranks.back();
  lines.push_back(line_of(
      terminal, cat(all.ranks, " ranks at step ", all.step, ": least (rank), median, most (rank)"),
      kBold));
  for (const auto& [name, spread] : all.figures) {
    if (!spread) continue;
    lines.push_back(
        line_of(terminal, cat("  ", name, "  ", format_number(spread->least), " (",
                              spread->least_rank, ")  ", format_number(spread->median), "  ",
                              format_number(spread->most), " (", spread->most_rank, ")")));
  }
}

}  // namespace

std::vector<std::string> braille_plot(const CurvePoints& points, int columns, int rows) {
  columns = std::max(columns, 0), rows = std::max(rows, 0);
  constexpr std::array<std::array<unsigned, 4>, 2> kDot = {
      {{0x01, 0x02, 0x04, 0x40}, {0x08, 0x10, 0x20, 0x80}}};
  if (points.empty() || columns == 0 || rows == 0) {
    return std::vector<std::string>(static_cast<size_t>(rows),
                                    std::string(static_cast<size_t>(columns), ' '));
  }
  std::vector<std::vector<unsigned>> letters(static_cast<size_t>(rows),
                                             std::vector<unsigned>(static_cast<size_t>(columns)));
  double low = points.front().value, high = low;
  auto first = static_cast<double>(points.front().step), last = first;
  for (const CurvePoint& point : points) {
    low = std::min(low, point.value);
    high = std::max(high, point.value);
    first = std::min(first, static_cast<double>(point.step));
    last = std::max(last, static_cast<double>(point.step));
  }
  last = std::max(last, first + 1);
  for (const CurvePoint& point : points) {
    const double step = static_cast<double>(point.step);
    const size_t x = dot_at(position_in(step, first, last), 2.0 * columns);
    const size_t y = dot_at(1 - position_in(point.value, low, high), 4.0 * rows);
    letters[y / 4][x / 2] |= kDot[x % 2][y % 4];
  }
  std::vector<std::string> lines;
  for (const auto& row : letters) {
    std::string& line = lines.emplace_back();
    for (const unsigned bits : row) line += braille(bits);
  }
  return lines;
}

std::vector<std::string> watch_screen(const RunData& run, const Terminal& wanted) {
  Terminal terminal = wanted;
  terminal.columns = std::clamp(terminal.columns, 0, kMostCells);
  terminal.rows = std::clamp(terminal.rows, 0, kMostCells);
  const bool has_failed = run.status && run.status->state == RunState::kFailed;
  std::vector<std::string> lines = {line_of(terminal, state_text(run), has_failed ? kRed : kBold),
                                    line_of(terminal, newest(run))};
  const int curves = 3;
  // Reserves lines for the header, for ranks and warnings (4), and for the title of each curve.
  const int rows = std::clamp((terminal.rows - 6) / curves - 1, 1, 12);
  add_curve(lines, terminal, "Loss", loss_curve(run), rows);
  add_curve(lines, terminal, "Gradient norm", curve_of(run, &StepMetrics::grad_norm), rows);
  add_curve(lines, terminal, "Items per second", curve_of(run, &StepMetrics::items_per_s), rows);
  add_ranks(lines, terminal, run);
  const size_t shown = std::min<size_t>(run.warnings.size(), 3);
  for (size_t i = run.warnings.size() - shown; i < run.warnings.size(); ++i) {
    const RunWarning& warning = run.warnings[i];
    lines.push_back(line_of(
        terminal,
        cat(excerpt(warning.level), " of rank ", warning.rank, ": ", excerpt(warning.text, 200)),
        kRed));
  }
  if (lines.size() > static_cast<size_t>(terminal.rows)) {
    lines.resize(static_cast<size_t>(terminal.rows));
  }
  return lines;
}

}  // namespace shale::models
