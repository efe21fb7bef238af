#include "shale/models/training/report/progress.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>

namespace shale {
namespace {

constexpr double kRedrawSeconds = 0.1;  // faster is unreadable, and slow on slow terminals
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

// Returns "950", "45.2k", "1.31M": three digits are easy to follow.
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

std::string step_text(const ProgressState& state) {
  if (state.total_steps <= 0) return cat("step ", state.step);
  const std::string total = std::to_string(state.total_steps);
  // Rounds down, so that 100% means done.
  const auto percent = static_cast<int>(100 * state.step / state.total_steps);
  return cat(
      print("step %*lld/", static_cast<int>(total.size()), static_cast<long long>(state.step)),
      total, print(" %3d%%", percent));
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

std::string format_progress(const ProgressState& state, std::optional<double> seconds_left) {
  std::string line = cat(step_text(state), " | loss ", print("%.4f", double{state.loss}));
  if (state.items_per_s) line += cat(" | ", compact(*state.items_per_s), " ", state.item, "/s");
  if (state.mfu) line += print(" | mfu %.1f%%", 100 * *state.mfu);
  if (state.memory_bytes) {
    line += cat(" | mem ", format_bytes(static_cast<double>(*state.memory_bytes)));
  }
  if (seconds_left) line += cat(" | ", format_duration(*seconds_left), " left");
  return line;
}

std::string format_evaluation(const EvalMetrics& metrics, int64_t total_steps) {
  std::string line = cat(step_text({.step = metrics.step, .total_steps = total_steps}),
                         " | validation loss ", print("%.4f", double{metrics.val_loss}));
  if (metrics.ema_val_loss) line += print(", of the average %.4f", *metrics.ema_val_loss);
  for (const auto& [k, share] : metrics.top_k) {
    line += cat(" | top ", k, print(": %.2f%%", 100 * share));
  }
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
    log_.status(format_progress(state, last_left_s_));
  } else {
    log_.info(format_progress(state, last_left_s_));
    last_is_plain_ = true;
  }
}

void Progress::finish() {
  log_.status("");
  if (last_ && !last_is_plain_) log_.info(format_progress(*last_, last_left_s_));
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
