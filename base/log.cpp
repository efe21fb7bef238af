#include "shale/base/log.h"

#include <linux/major.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/base_sink.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <new>

#include "shale/base/failure.h"
#include "shale/base/parse.h"

namespace shale {
namespace {

constexpr std::string_view kClearLine = "\r\x1b[K";

spdlog::level::level_enum spdlog_level(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug: return spdlog::level::debug;
    case LogLevel::kInfo: return spdlog::level::info;
    case LogLevel::kWarning: return spdlog::level::warn;
    case LogLevel::kError: return spdlog::level::err;
  }
  return spdlog::level::info;
}

LogLevel lowest_level(const LogOptions& options) {
  const bool few = options.quiet || options.rank.value_or(0) != 0;
  return few ? std::max(options.level, LogLevel::kWarning) : options.level;
}

// Open MPI gives every rank a pseudo-terminal, even if mpirun's own output goes to a file.
// Therefore the output of the parent process, the launcher, decides. If it cannot be read, the log
// has no status line.
bool launcher_is_on_terminal(int fd) {
  struct stat status {};
  const std::string path = cat("/proc/", getppid(), "/fd/", fd);
  if (stat(path.c_str(), &status) != 0 || !S_ISCHR(status.st_mode)) return false;
  const auto driver = major(status.st_rdev);
  return driver == TTY_MAJOR || (driver >= UNIX98_PTY_SLAVE_MAJOR &&
                                 driver < UNIX98_PTY_SLAVE_MAJOR + UNIX98_PTY_MAJOR_COUNT);
}

bool is_terminal(FILE* file) {
  const int fd = fileno(file);
  if (isatty(fd) != 1) return false;
  const bool launched = std::getenv("OMPI_COMM_WORLD_RANK") != nullptr;
  return !launched || fd > STDERR_FILENO || launcher_is_on_terminal(fd);
}

// Returns 0 if the width is unknown.
size_t terminal_columns(FILE* file) {
  winsize size{};
  return ioctl(fileno(file), TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

// Writes lines to the two files and keeps the status line below them.
class TerminalSink : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit TerminalSink(const LogOptions& options) { configure(options); }

  // Returns the options now in effect.
  LogOptions configure(const LogOptions& options) {
    const std::lock_guard lock(mutex_);
    const std::optional<int> rank = options.rank ? options.rank : options_.rank;
    options_ = options;
    options_.rank = rank;
    out_is_terminal_ = is_terminal(options.out);
    err_has_color_ = is_terminal(options.err) && std::getenv("NO_COLOR") == nullptr;
    return options_;
  }

  // Returns the options before the call.
  LogOptions set_rank(int rank) {
    const std::lock_guard lock(mutex_);
    const LogOptions before = options_;
    options_.rank = rank;
    return before;
  }

  void listen(Logger::Listener listener) {
    const std::lock_guard lock(mutex_);
    listener_ = std::move(listener);
  }

  bool out_is_terminal() const { return out_is_terminal_; }

  void set_status(std::string_view text) {
    const std::lock_guard lock(mutex_);
    const size_t columns = terminal_columns(options_.out);
    // The last column stays empty: some terminals wrap when it is written.
    status_ = text.substr(0, columns > 1 ? columns - 1 : text.size());
    write(options_.out, cat(kClearLine, status_));
  }

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    const std::string_view text(message.payload.data(), message.payload.size());
    const std::string line = cat(tag(message.level), text, "\n");
    FILE* const file = message.level >= spdlog::level::warn ? options_.err : options_.out;
    if (status_.empty()) {
      write(file, line);
    } else {
      // Both files may be one terminal, so the status line is removed before a write to either.
      write(options_.out, kClearLine);
      write(file, line);
      write(options_.out, status_);
    }
    if (listener_ && message.level >= spdlog::level::warn) {
      listener_(message.level >= spdlog::level::err ? LogLevel::kError : LogLevel::kWarning, text);
    }
  }
  void flush_() override {}

 private:
  std::string tag(spdlog::level::level_enum level) const {
    const int rank = options_.rank.value_or(0);
    std::string tag = rank == 0 ? "" : cat("[rank ", rank, "] ");
    if (level < spdlog::level::warn) return tag;
    const bool is_error = level >= spdlog::level::err;
    const std::string_view name = is_error ? "error: " : "warning: ";
    return err_has_color_ ? cat(tag, is_error ? "\x1b[31m" : "\x1b[33m", name, "\x1b[0m")
                          : cat(tag, name);
  }

  // One call and one flush per line: stdio writes the line in one piece.
  static void write(FILE* file, std::string_view text) {
    std::fwrite(text.data(), 1, text.size(), file);
    std::fflush(file);
  }

  LogOptions options_;
  std::atomic<bool> out_is_terminal_ = false;
  bool err_has_color_ = false;
  Logger::Listener listener_;
  std::string status_;
};

}  // namespace

struct Logger::State {
  std::shared_ptr<TerminalSink> sink;
  spdlog::logger logger;
  std::atomic<LogLevel> lowest{};

  explicit State(const LogOptions& options)
      : sink(std::make_shared<TerminalSink>(options)), logger("shale", sink) {
    set_level(options);
  }
  void set_level(const LogOptions& options) {
    lowest = lowest_level(options);
    logger.set_level(spdlog_level(lowest));
  }
  // Debug and info texts may have several lines; a warning or error is one message. spdlog catches
  // exceptions of its sinks. The text is passed as an argument: it is not a format string.
  void log(LogLevel level, std::string_view text) noexcept try {
    if (level < lowest) return;
    const std::string shown =
        level < LogLevel::kWarning ? printable(text, "\n\t") : printable_message(text);
    logger.log(spdlog_level(level), spdlog::string_view_t(shown.data(), shown.size()));
  } catch (const std::bad_alloc&) {
  }
};

Logger::Logger(const LogOptions& options) : state_(std::make_unique<State>(options)) {}
Logger::~Logger() = default;
Logger::Logger(Logger&&) noexcept = default;
Logger& Logger::operator=(Logger&&) noexcept = default;

void Logger::configure(const LogOptions& options) {
  state_->set_level(state_->sink->configure(options));
}

int Logger::set_rank(int rank) {
  LogOptions options = state_->sink->set_rank(rank);
  const int before = options.rank.value_or(0);
  options.rank = rank;
  state_->set_level(options);
  return before;
}

void Logger::listen(Listener listener) {
  state_->sink->listen(std::move(listener));
}

void Logger::debug(std::string_view text) noexcept {
  state_->log(LogLevel::kDebug, text);
}
void Logger::info(std::string_view text) noexcept {
  state_->log(LogLevel::kInfo, text);
}
void Logger::warning(std::string_view text) noexcept {
  state_->log(LogLevel::kWarning, text);
}
void Logger::error(std::string_view text) noexcept {
  state_->log(LogLevel::kError, text);
}

bool Logger::enabled(LogLevel level) const {
  return level >= state_->lowest;
}

bool Logger::has_status_line() const {
  return state_->sink->out_is_terminal() && enabled(LogLevel::kInfo);
}

void Logger::status(std::string_view text) noexcept {
  if (has_status_line()) state_->sink->set_status(text);
}

Logger& process_log() {
  static Logger logger{LogOptions{}};
  return logger;
}

void set_process_log(const LogOptions& options) {
  process_log().configure(options);
}

}  // namespace shale
