// The logger of builds without libraries (SHALE_KERNELS_ONLY): plain lines, no status line.
#include "shale/base/log.h"

#include <mutex>

namespace shale {

struct Logger::State {
  LogOptions options;
  std::mutex mutex;

  void print(FILE* file, const char* before, std::string_view text) noexcept {
    const std::lock_guard lock(mutex);
    std::fprintf(file, "%s%.*s\n", before, int(text.size()), text.data());
  }
};

Logger::Logger(const LogOptions& options) : state_(std::make_unique<State>()) {
  state_->options = options;
}
Logger::~Logger() = default;
Logger::Logger(Logger&&) noexcept = default;
Logger& Logger::operator=(Logger&&) noexcept = default;

bool Logger::enabled(LogLevel level) const {
  const LogOptions& o = state_->options;
  const bool for_all = level >= LogLevel::kWarning;
  return level >= o.level && (for_all || (o.rank == 0 && !o.quiet));
}

void Logger::debug(std::string_view text) noexcept {
  if (enabled(LogLevel::kDebug)) state_->print(state_->options.out, "", text);
}
void Logger::info(std::string_view text) noexcept {
  if (enabled(LogLevel::kInfo)) state_->print(state_->options.out, "", text);
}
void Logger::warning(std::string_view text) noexcept {
  if (enabled(LogLevel::kWarning)) state_->print(state_->options.err, "warning: ", text);
}
void Logger::error(std::string_view text) noexcept {
  if (enabled(LogLevel::kError)) state_->print(state_->options.err, "error: ", text);
}

bool Logger::has_status_line() const {
  return false;
}
void Logger::status(std::string_view) noexcept {}

namespace {

std::unique_ptr<Logger>& current() {
  static auto logger = std::make_unique<Logger>(LogOptions{});
  return logger;
}

}  // namespace

Logger& process_log() {
  return *current();
}

void set_process_log(const LogOptions& options) {
  current() = std::make_unique<Logger>(options);
}

}  // namespace shale
