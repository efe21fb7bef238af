// The logger of builds without libraries (SHALE_KERNELS_ONLY): plain lines without a status line.
#include "shale/base/log.h"

#include <mutex>
#include <utility>

#include "shale/base/failure.h"
#include "shale/base/parse.h"

namespace shale {

struct Logger::State {
  LogOptions options;
  Listener listener;
  mutable std::mutex mutex;

  void print(LogLevel level, const char* before, std::string_view text) noexcept {
    const std::lock_guard lock(mutex);
    const bool is_problem = level >= LogLevel::kWarning;
    const std::string shown =
        level < LogLevel::kWarning ? printable(text, "\n\t") : printable_message(text);
    std::fprintf(is_problem ? options.err : options.out, "%s%s\n", before, shown.c_str());
    if (listener && is_problem) listener(level, shown);
  }
};

Logger::Logger(const LogOptions& options) : state_(std::make_unique<State>()) {
  state_->options = options;
}
Logger::~Logger() = default;
Logger::Logger(Logger&&) noexcept = default;
Logger& Logger::operator=(Logger&&) noexcept = default;

bool Logger::enabled(LogLevel level) const {
  const std::lock_guard lock(state_->mutex);
  const LogOptions& o = state_->options;
  const bool for_all = level >= LogLevel::kWarning;
  return level >= o.level && (for_all || (o.rank.value_or(0) == 0 && !o.quiet));
}

void Logger::debug(std::string_view text) noexcept {
  if (enabled(LogLevel::kDebug)) state_->print(LogLevel::kDebug, "", text);
}
void Logger::info(std::string_view text) noexcept {
  if (enabled(LogLevel::kInfo)) state_->print(LogLevel::kInfo, "", text);
}
void Logger::warning(std::string_view text) noexcept {
  if (enabled(LogLevel::kWarning)) state_->print(LogLevel::kWarning, "warning: ", text);
}
void Logger::error(std::string_view text) noexcept {
  if (enabled(LogLevel::kError)) state_->print(LogLevel::kError, "error: ", text);
}

bool Logger::has_status_line() const {
  return false;
}
void Logger::status(std::string_view) noexcept {}

void Logger::configure(const LogOptions& options) {
  const std::lock_guard lock(state_->mutex);
  const std::optional<int> rank = options.rank ? options.rank : state_->options.rank;
  state_->options = options;
  state_->options.rank = rank;
}

int Logger::set_rank(int rank) {
  const std::lock_guard lock(state_->mutex);
  const std::optional<int> before = std::exchange(state_->options.rank, rank);
  return before.value_or(0);
}

void Logger::listen(Listener listener) {
  const std::lock_guard lock(state_->mutex);
  state_->listener = std::move(listener);
}

Logger& process_log() {
  static Logger logger{LogOptions{}};
  return logger;
}

void set_process_log(const LogOptions& options) {
  process_log().configure(options);
}

}  // namespace shale
