#include "shale/models/views/watch_screen.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <string_view>

#include "shale/base/parse.h"
#include "shale/base/text.h"
#include "shale/models/training/report/progress.h"

namespace shale::models {
namespace {

constexpr std::string_view kBold = "\x1b[1m", kBlue = "\x1b[34m", kRed = "\x1b[31m",
                           kPlain = "\x1b[0m";
constexpr int kLabelColumns = 10;  // width of the y axis and its labels
constexpr int kMostCells = 1000;   // maximum number of columns, and of rows

// Returns the Braille character U+2800 + bits in UTF-8. Each bit is a dot.
std::string braille(unsigned bits) {
  const unsigned code = 0x2800 + bits;
  return {static_cast<char>(0xe0 | code >> 12), static_cast<char>(0x80 | (code >> 6 & 0x3f)),
          static_cast<char>(0x80 | (code & 0x3f))};
}

// Returns the index of the dot at `position`, 0 to 1, in a line of `dots`.
size_t dot_at(double position, double dots) {
  return static_cast<size_t>(std::lround(position * (dots - 1)));
}

// Truncates a line to the terminal's width and adds the colour. Counts a character of three or more
// bytes as two columns, because some are that wide.
std::string line_of(const Terminal& terminal, std::string_view text, std::string_view color = {}) {
  size_t bytes = 0;
  for (int columns = 0; bytes < text.size();) {
    const size_t next = utf8_start(text.substr(bytes)).bytes;
    columns += next > 2 ? 2 : 1;
    if (columns > terminal.columns) break;
    bytes += next;
  }
  const std::string cut(text.substr(0, bytes));
  return terminal.has_color && !color.empty() ? cat(color, cut, kPlain) : cut;
}

// Range of steps and values that a plot shows.
struct PlotFrame {
  double first = 0, last = 0;  // range of steps
  double low = 0, high = 0;    // range of values

  double end() const { return std::max(last, first + 1); }
};

// Returns the range that the points and marks need. `points` must not be empty.
PlotFrame frame_of(const CurvePoints& points, const CurvePoints& marks) {
  const auto step_of = [](const CurvePoint& point) { return static_cast<double>(point.step); };
  PlotFrame frame{step_of(points.front()), step_of(points.front()), points.front().value,
                  points.front().value};
  for (const CurvePoint& point : points) {
    frame.first = std::min(frame.first, step_of(point));
    frame.last = std::max(frame.last, step_of(point));
  }
  for (const CurvePoints* const list : {&points, &marks}) {
    for (const CurvePoint& point : *list) {
      frame.low = std::min(frame.low, point.value);
      frame.high = std::max(frame.high, point.value);
    }
  }
  return frame;
}

std::string left_padded(const std::string& text, size_t width) {
  return cat(std::string(width > text.size() ? width - text.size() : 0, ' '), text);
}

// Returns the value of a key as text that is safe to print; empty if there is none.
std::string text_in(const Json& object, std::string_view key) {
  const Json* const value = object.find(key);
  if (value == nullptr || value->is_null()) return {};
  return excerpt(value->is_string() ? value->text() : value->dump(), 200);
}

std::string state_text(const RunData& run) {
  std::string text = cat(excerpt(run.name), ": ", excerpt(run.state));
  if (run.state == "killed") text += ", no process writes to the folder";
  const bool may_run = run.state == "running" || run.state == "unknown";
  if (may_run && run.silent_s > 60) text += cat(", silent for ", format_duration(run.silent_s));
  const std::string checkpoint = text_in(run.status, "checkpoint_step");
  const std::string message = text_in(run.status, "message");
  if (!checkpoint.empty()) text += ", checkpoint at " + checkpoint;
  return message.empty() ? text : cat(text, ", ", message);
}

// Returns the newest values of a run, each as a text of a few words.
std::vector<std::string> newest_figures(const RunData& run) {
  const Column* const losses = run.column("loss");
  if (losses == nullptr) return {"no step yet"};
  std::vector<std::string> figures = {cat("step ", losses->newest_step())};
  if (const auto wanted = run.steps_wanted()) {
    figures.back() += cat(" of ", *wanted, ", ",
                          100 * losses->newest_step() / std::max<int64_t>(1, *wanted), "%");
  }
  const auto add = [&](std::string_view name, std::string_view key, double scale,
                       std::string_view unit) {
    const std::optional<double> value = run.newest(key);
    if (!value) return;
    std::array<char, 32> digits{};
    std::snprintf(digits.data(), digits.size(), "%.4g", scale * *value);
    figures.push_back(cat(name, " ", digits.data(), unit));
  };
  add("epoch", "epoch", 1, "");
  if (const auto left = run.seconds_left()) figures.push_back(format_duration(*left) + " left");
  if (losses->newest()) {
    figures.push_back(cat("loss ", format_number(*losses->newest())));
  } else {
    figures.emplace_back("loss nan");
  }
  add("validation", "val_loss", 1, "");
  add("top-1", "val_top1", 100, "%");
  add("lr", "lr", 1, "");
  if (const auto speed = run.newest(run.item() + "_per_s")) {
    figures.push_back(
        cat(format_number(*speed < 100 ? std::round(100 * *speed) / 100 : std::round(*speed)), " ",
            run.item(), "/s"));
  }
  add("mfu", "mfu", 100, "%");
  for (const std::string_view kind : {"device", "host"}) {
    const auto bytes = run.newest(cat(kind, "_peak_bytes"));
    if (bytes) figures.push_back(cat(kind, " memory ", format_bytes(*bytes)));
  }
  return figures;
}

// Adds the texts as lines, with as many texts on a line as fit.
void add_wrapped(std::vector<std::string>& lines, const Terminal& terminal,
                 const std::vector<std::string>& figures) {
  std::string line;
  for (const std::string& figure : figures) {
    if (!line.empty() && line.size() + 2 + figure.size() > size_t(terminal.columns)) {
      lines.push_back(line_of(terminal, line));
      line.clear();
    }
    line += cat(line.empty() ? "" : "  ", figure);
  }
  lines.push_back(line_of(terminal, line));
}

// Returns the y axis of a plot with `rows` rows: labels and a vertical line.
std::vector<std::string> y_axis(double low, double high, int rows) {
  std::vector<std::string> labels(static_cast<size_t>(rows));
  for (const double mark : axis_marks(low, high)) {
    const size_t row = dot_at(1 - position_in(mark, low, high), 4.0 * rows) / 4;
    if (labels[row].empty()) labels[row] = format_number(mark);
  }
  for (std::string& label : labels) {
    label = label.substr(0, kLabelColumns - 1);
    label = left_padded(label, kLabelColumns - 1) + (label.empty() ? "│" : "┤");
  }
  return labels;
}

// Adds an x axis with steps as labels.
void add_x_axis(std::vector<std::string>& lines, const PlotFrame& frame, int columns) {
  std::vector<std::string_view> line(static_cast<size_t>(columns), "─");
  std::string labels(static_cast<size_t>(columns + kLabelColumns), ' ');
  size_t end = 0;  // end of the previous label
  for (const double mark : axis_marks(frame.first, frame.end())) {
    if (mark != std::floor(mark)) continue;
    const size_t place = dot_at(position_in(mark, frame.first, frame.end()), 2.0 * columns) / 2;
    line[place] = "┬";
    const std::string text = format_number(mark);
    const size_t centre = place + kLabelColumns;
    const size_t begin = std::min(centre - std::min(centre, text.size() / 2),
                                  labels.size() - std::min(labels.size(), text.size()));
    if (begin < end + 1) continue;
    labels.replace(begin, text.size(), text);
    end = begin + text.size();
  }
  std::string axis = std::string(kLabelColumns - 1, ' ') + "└";
  for (const std::string_view cell : line) axis += cell;
  lines.push_back(axis);
  lines.push_back(labels.substr(0, static_cast<size_t>(columns + kLabelColumns)));
}

// Plot with a title: the curve of a column, and marks over it.
struct Plot {
  std::string title;
  CurvePoints points;
  CurvePoints marks = {};
};

void add_plot(std::vector<std::string>& lines, const Terminal& terminal, const Plot& plot, int rows,
              bool has_x_axis) {
  const int columns = terminal.columns - kLabelColumns;
  if (rows < 1 || columns < 1) return;
  const PlotFrame frame = frame_of(plot.points, plot.marks);
  lines.push_back(line_of(terminal,
                          cat(plot.title, plot.marks.empty() ? "" : ", o: validation", ", steps ",
                              frame.first, " to ", frame.last),
                          kBold));
  const std::vector<std::string> dots = braille_plot(plot.points, columns, rows, plot.marks);
  const std::vector<std::string> labels = y_axis(frame.low, frame.high, rows);
  for (size_t row = 0; row < dots.size(); ++row) {
    lines.push_back(
        cat(labels[row], terminal.has_color ? cat(kBlue, dots[row], kPlain) : dots[row]));
  }
  if (has_x_axis) add_x_axis(lines, frame, columns);
}

// Returns the plots of the columns that the run has.
std::vector<Plot> plots_of(const RunData& run) {
  const std::string speed = run.item() + "_per_s";
  std::vector<Plot> plots = {{.title = "Loss", .points = {}},
                             {.title = "Gradient norm", .points = {}},
                             {.title = cat(excerpt(run.item(), 20), " per second"), .points = {}}};
  const std::array<std::string_view, 3> keys = {"loss", "grad_norm", speed};
  for (size_t i = 0; i < plots.size(); ++i) {
    if (const Column* const column = run.column(keys[i])) {
      plots[i].points = smoothed(curve_of(*column));
    }
  }
  if (const Column* const column = run.column("val_loss")) plots[0].marks = curve_of(*column);
  std::erase_if(plots, [](const Plot& plot) { return plot.points.empty(); });
  return plots;
}

// Adds the newest metrics of all ranks.
void add_ranks(std::vector<std::string>& lines, const Terminal& terminal, const RunData& run) {
  constexpr std::string_view kMedian = "_median";
  const std::optional<double> ranks = run.newest("ranks");
  if (!ranks || *ranks < 2) return;
  lines.push_back(
      line_of(terminal,
              cat(format_number(*ranks), " ranks at step ", run.column("ranks")->newest_step(),
                  ": least (rank), median, most (rank)"),
              kBold));
  for (const auto& [key, column] : run.columns) {
    if (!key.ends_with(kMedian) || !column.newest()) continue;
    const std::string name = key.substr(0, key.size() - kMedian.size());
    const bool is_share = name.find("share") != name.npos || name.ends_with("_fragmentation");
    const auto shown = [&](std::string_view ending) {
      const double value = run.newest(name + std::string(ending)).value_or(0);
      if (ending.ends_with("_rank")) return cat(" (", format_number(value), ")");
      return name.ends_with("_bytes") ? format_bytes(value)
             : !is_share              ? format_number(value)
                                      : cat(format_number(std::round(1000 * value) / 10), "%");
    };
    lines.push_back(
        line_of(terminal, cat("  ", excerpt(name, 60), "  ", shown("_min"), shown("_min_rank"),
                              "  ", shown(kMedian), "  ", shown("_max"), shown("_max_rank"))));
  }
}

}  // namespace

std::vector<std::string> braille_plot(const CurvePoints& points, int columns, int rows,
                                      const CurvePoints& marks) {
  columns = std::max(columns, 0), rows = std::max(rows, 0);
  constexpr unsigned kMark = 0x100;  // bit besides those of the eight dots
  constexpr std::array<std::array<unsigned, 4>, 2> kDot = {
      {{0x01, 0x02, 0x04, 0x40}, {0x08, 0x10, 0x20, 0x80}}};
  if (points.empty() || columns == 0 || rows == 0) {
    return std::vector<std::string>(static_cast<size_t>(rows),
                                    std::string(static_cast<size_t>(columns), ' '));
  }
  std::vector<std::vector<unsigned>> letters(static_cast<size_t>(rows),
                                             std::vector<unsigned>(static_cast<size_t>(columns)));
  const PlotFrame frame = frame_of(points, marks);
  const auto dot_of = [&](const CurvePoint& point) {
    const double step = static_cast<double>(point.step);
    return std::array{dot_at(position_in(step, frame.first, frame.end()), 2.0 * columns),
                      dot_at(1 - position_in(point.value, frame.low, frame.high), 4.0 * rows)};
  };
  std::vector<std::array<size_t, 2>> dots;
  for (const CurvePoint& point : points) dots.push_back(dot_of(point));
  std::ranges::stable_sort(dots, {}, [](const auto& dot) { return dot[0]; });
  for (size_t i = 0; i < dots.size(); ++i) {
    // Draws a straight line from the previous point.
    const auto& from = dots[i - std::min<size_t>(i, 1)];
    const auto far = [&](size_t axis) {
      return std::max(from[axis], dots[i][axis]) - std::min(from[axis], dots[i][axis]);
    };
    const size_t length = std::max({far(0), far(1), size_t{1}});
    for (size_t k = 0; k <= length; ++k) {
      const auto at = [&](size_t axis) {
        return (from[axis] * (length - k) + dots[i][axis] * k + length / 2) / length;
      };
      letters[at(1) / 4][at(0) / 2] |= kDot[at(0) % 2][at(1) % 4];
    }
  }
  for (const CurvePoint& mark : marks) {
    const auto [x, y] = dot_of(mark);
    letters[y / 4][x / 2] |= kMark;
  }
  std::vector<std::string> lines;
  for (const auto& row : letters) {
    std::string& line = lines.emplace_back();
    for (const unsigned bits : row) line += bits >= kMark ? "o" : braille(bits);
  }
  return lines;
}

std::vector<std::string> watch_screen(const RunData& run, const Terminal& wanted) {
  Terminal terminal = wanted;
  terminal.columns = std::clamp(terminal.columns, 0, kMostCells);
  terminal.rows = std::clamp(terminal.rows, 0, kMostCells);
  const bool has_failed = run.state == "failed" || run.state == "killed";
  std::vector<std::string> lines = {line_of(terminal, state_text(run), has_failed ? kRed : kBold)};
  add_wrapped(lines, terminal, newest_figures(run));
  std::vector<std::string> last;
  add_ranks(last, terminal, run);
  const Json::Array& warnings = run.warnings.newest;
  for (size_t i = warnings.size() - std::min<size_t>(warnings.size(), 3); i < warnings.size();
       ++i) {
    last.push_back(line_of(terminal,
                           cat(text_in(warnings[i], "level"), " of rank ",
                               text_in(warnings[i], "rank"), ": ", text_in(warnings[i], "text")),
                           kRed));
  }
  // The curves use the remaining lines, of which the loss gets half. Each curve has a title, and
  // the last one an x axis.
  const std::vector<Plot> plots = plots_of(run);
  const int between = terminal.rows - static_cast<int>(lines.size() + last.size());
  const int rows = between - static_cast<int>(plots.size()) - 2;
  for (const Plot& plot : plots) {
    const bool is_loss = plot.title == "Loss";
    add_plot(lines, terminal, plot, std::clamp(rows / (is_loss ? 2 : 4), 1, is_loss ? 20 : 10),
             &plot == &plots.back());
  }
  lines.insert(lines.end(), last.begin(), last.end());
  if (lines.size() > static_cast<size_t>(terminal.rows)) {
    lines.resize(static_cast<size_t>(terminal.rows));
  }
  return lines;
}

}  // namespace shale::models
