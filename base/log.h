#pragma once

#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "shale/base/text.h"

namespace shale {

enum class LogLevel { kDebug, kInfo, kWarning, kError };  // least severe first

struct LogOptions {                  // identity and output of a Logger
  std::optional<int> rank = {};      // nullopt: keep the logger's rank, which is 0 at first
  LogLevel level = LogLevel::kInfo;  // lower levels are dropped
  bool quiet = false;                // warnings and errors only
  FILE* out = stdout;                // debug, info and the status line
  FILE* err = stderr;                // warnings and errors
};

// Log for people. Rank 0 prints all levels; other ranks print only warnings and errors, with the
// prefix "[rank 2] ". Debug and info go to standard output, so that `train > log` keeps them;
// warnings and errors go to standard error. Lines are written in one piece, so ranks do not mix.
// Thread-safe.
class Logger {
 public:
  explicit Logger(const LogOptions& options);
  ~Logger();
  Logger(Logger&&) noexcept;
  Logger& operator=(Logger&&) noexcept;
  // Changes rank, level and files. Safe while other threads log.
  void configure(const LogOptions& options);
  // Changes only the rank. Returns the previous rank.
  int set_rank(int rank);

  // Each logs a line. `text` must not end with a newline. None of them throws: a line that cannot
  // be written is lost.
  void debug(std::string_view text) noexcept;
  void info(std::string_view text) noexcept;
  void warning(std::string_view text) noexcept;
  void error(std::string_view text) noexcept;

  bool enabled(LogLevel level) const;

  // Called with each warning and error after it is printed. Must not log. There is only one
  // listener; an empty one removes it. When listen() returns, no call of the previous listener is
  // running.
  using Listener = std::function<void(LogLevel, std::string_view)>;
  void listen(Listener listener);

  // Returns whether the status line is shown: `out` is a terminal and info is enabled.
  bool has_status_line() const;
  // Replaces the status line, which stays below all other lines and is cut to the terminal's width.
  // An empty text removes it. Does nothing unless has_status_line().
  void status(std::string_view text) noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The process's logger, for code that has no other. Prints as rank 0 until comm::run sets the rank.
Logger& process_log();
void set_process_log(const LogOptions& options);  // process_log().configure()

// Text of a value in a log line. Floating-point numbers have six digits.
template <typename T>
decltype(auto) log_text(const T& value) {
  if constexpr (std::is_floating_point_v<T>) {
    return format_number(static_cast<double>(value));
  } else {
    return (value);
  }
}

template <typename... Args>
void log_info(const Args&... args) {  // prints a line with process_log(), joined by cat()
  process_log().info(cat(log_text(args)...));
}
template <typename... Args>
void log_warning(const Args&... args) {
  process_log().warning(cat(log_text(args)...));
}
template <typename... Args>
void log_error(const Args&... args) {
  process_log().error(cat(log_text(args)...));
}

}  // namespace shale
