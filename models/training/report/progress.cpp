#include "shale/models/training/report/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>

namespace shale {
namespace {

// Minimum time between updates: more often would be unreadable, and slow on slow terminals.
constexpr double kRedrawSeconds = 0.1;
constexpr double kLineSeconds = 10;
constexpr int64_t kLinesPerRun = 50;

double steady_seconds() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

template <typename... Values>
std::string print(const char* format, Values... values) {
  std::array<char, 64> buffer{};
  std::snprintf(buffer.data(), buffer.size(), format, values...);
  return buffer.data();
}

// Returns a text such as "950", "45.2k" or "1.31M". Three digits are easy to follow.
std::string compact(double value) {
  static constexpr std::array kSuffixes = {"", "k", "M", "G"};
  size_t suffix = 0;
  // Uses the next suffix from 999.5 on, which would be printed as "1000".
  while (value >= 999.5 && suffix + 1 < kSuffixes.size()) {
    value /= 1000;
    ++suffix;
  }
  const int decimals = value >= 99.95 || suffix == 0 ? 0 : value >= 9.995 ? 1 : 2;
  return print("%.*f%s", decimals, value, kSuffixes[suffix]);
}

// Returns a text such as "0.52", "12.5", "140" or "1.4e+03".
std::string short_number(double value) {
  return print(value < 9.995   ? "%.2f"
               : value < 99.95 ? "%.1f"
               : value < 999.5 ? "%.0f"
                               : "%.1e",
               value);
}

// Returns a text such as "2.9e-4".
std::string short_exponent(double value) {
  std::string text = print("%.1e", value);
  const size_t zero = text.find_first_of("+-") + 1;
  if (zero + 2 == text.size() && text[zero] == '0') text.erase(zero, 1);
  return text;
}

std::string step_text(const ProgressState& state, bool is_aligned = true, bool has_percent = true) {
  if (state.total_steps <= 0) return cat("step ", state.step);
  const std::string total = std::to_string(state.total_steps);
  // Rounds down, so that 100% means done.
  const auto percent = static_cast<int>(100 * state.step / state.total_steps);
  const int width = is_aligned ? static_cast<int>(total.size()) : 0;
  return cat(print("step %*lld/", width, static_cast<long long>(state.step)), total,
             has_percent ? print(" %3d%%", percent) : "");
}

// Returns the width available for a status line. The terminals that launchers give ranks have no
// width.
size_t status_columns() {
  constexpr size_t kUsual = 80;
  winsize size{};
  const bool is_known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
  return (is_known ? size.ws_col : kUsual) - 1;  // the log leaves the last column empty
}

}  // namespace

std::string format_duration(double seconds) {
  const auto whole = static_cast<long long>(std::clamp(std::round(seconds), 0.0, 1e9));
  const long long minutes = whole / 60, hours = minutes / 60, days = hours / 24;
  if (minutes == 0) return print("%llds", whole);
  if (hours == 0) return print("%lldm %02llds", minutes, whole % 60);
  if (days == 0) return print("%lldh %02lldm", hours, minutes % 60);
  return print("%lldd %02lldh", days, hours % 24);
}

std::string format_progress(const ProgressState& state, std::optional<double> seconds_left,
                            size_t columns) {
  std::string line;
  // Tries shorter and shorter lines until one fits. Lower levels omit more fields, and level 0 also
  // the bars.
  for (int level = 5; level >= 0; --level) {
    const char* const bar = level > 0 ? " | " : "  ";
    line = step_text(state, /*is_aligned=*/level > 0, /*has_percent=*/level > 2);
    if (state.epoch) line += cat(bar, "epoch ", short_number(*state.epoch));
    line += cat(bar, print("loss %.4f", double{state.loss}));
    if (state.lr) line += cat(bar, "lr ", short_exponent(*state.lr));
    if (state.grad_norm) line += cat(bar, "norm ", short_number(*state.grad_norm));
    if (state.items_per_s && level > 1) {
      line += cat(bar, compact(*state.items_per_s), " ", state.item, "/s");
    }
    if (state.mfu && level > 3) line += cat(bar, print("mfu %.1f%%", 100 * *state.mfu));
    if (state.memory_bytes && level > 4) {
      line += cat(bar, "mem ", format_bytes(static_cast<double>(*state.memory_bytes)));
    }
    if (seconds_left) line += cat(bar, format_duration(*seconds_left), " left");
    if (line.size() <= columns) break;
  }
  return line;
}

std::string format_evaluation(const EvalMetrics& metrics, int64_t total_steps) {
  std::string line = cat(step_text({.step = metrics.step, .total_steps = total_steps}),
                         " | validation loss ", print("%.4f", double{metrics.val_loss}));
  if (metrics.ema_val_loss) line += print(", of the averaged weights %.4f", *metrics.ema_val_loss);
  for (const auto& [k, share] : metrics.top_k) {
    line += cat(" | top ", k, print(": %.2f%%", 100 * share));
  }
  for (const auto& [name, value] : metrics.more) line += cat(" | ", name, print(" %.4g", value));
  if (metrics.items) {
    line += cat(" | ", compact(static_cast<double>(*metrics.items)), " ", metrics.item);
    if (metrics.ms) line += cat(" in ", format_duration(*metrics.ms / 1e3));
  }
  return line;
}

Progress::Progress(Logger& log, Clock clock)
    : log_(log), clock_(clock ? std::move(clock) : Clock(steady_seconds)) {}

void Progress::update(const ProgressState& state) {
  const double now = clock_();
  if (!counted_from_s_) {
    counted_from_s_ = now;
    counted_from_step_ = state.step;
  }
  const bool due = is_due(state, now);
  last_ = state;
  last_left_s_ = seconds_left(state, now);
  last_is_plain_ = false;
  if (!due) return;
  shown_step_ = state.step;
  shown_at_s_ = now;
  if (log_.has_status_line()) {
    log_.status(format_progress(state, last_left_s_, status_columns()));
  } else {
    log_.info(format_progress(state, last_left_s_));
    last_is_plain_ = true;
  }
}

void Progress::finish() {
  log_.status("");
  const size_t columns = log_.has_status_line() ? status_columns() : std::string::npos;
  if (last_ && !last_is_plain_) log_.info(format_progress(*last_, last_left_s_, columns));
  last_is_plain_ = true;
}

bool Progress::is_due(const ProgressState& state, double now) const {
  if (!last_ || state.step == state.total_steps) return true;
  if (log_.has_status_line()) return now - shown_at_s_ >= kRedrawSeconds;
  // Rounds up, so that at most kLinesPerRun lines are printed.
  const int64_t stride =
      std::max<int64_t>(1, (state.total_steps + kLinesPerRun - 1) / kLinesPerRun);
  const bool far = state.total_steps > 0 && state.step - shown_step_ >= stride;
  return far || now - shown_at_s_ >= kLineSeconds;
}

std::optional<double> Progress::seconds_left(const ProgressState& state, double now) const {
  const int64_t counted = state.step - counted_from_step_;
  if (counted <= 0 || state.total_steps <= state.step) return std::nullopt;
  const double per_step = (now - *counted_from_s_) / static_cast<double>(counted);
  return per_step * static_cast<double>(state.total_steps - state.step);
}

}  // namespace shale
