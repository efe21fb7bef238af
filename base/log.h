#pragma once

#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "shale/base/text.h"

namespace shale {

enum class LogLevel { kDebug, kInfo, kWarning, kError };  // ascending

struct LogOptions {                  // who a Logger speaks for, and where to
  std::optional<int> rank = {};      // nullopt: as before; 0 at first
  LogLevel level = LogLevel::kInfo;  // what is below is dropped
  bool quiet = false;                // warnings and errors only
  FILE* out = stdout;                // debug, info and the status line
  FILE* err = stderr;                // warnings and errors
};

// Lines for people. Rank 0 prints all levels; other ranks print warnings and errors only, after
// "[rank 2] ". What a program says in a normal run goes to standard output, so that `train > log`
// keeps it; warnings and errors go to standard error. A line is written in one piece, so lines of
// several ranks do not mix. Safe to use from several threads.
class Logger {
 public:
  explicit Logger(const LogOptions& options);
  ~Logger();
  Logger(Logger&&) noexcept;
  Logger& operator=(Logger&&) noexcept;
  // Speaks for others from now on, or elsewhere. Safe beside threads that log.
  void configure(const LogOptions& options);
  // The same for the rank alone. Returns the one before.
  int set_rank(int rank);

  // `text` without a newline at its end. Never throw: a log that cannot be written is lost.
  void debug(std::string_view text) noexcept;
  void info(std::string_view text) noexcept;
  void warning(std::string_view text) noexcept;
  void error(std::string_view text) noexcept;

  bool enabled(LogLevel level) const;

  // Gets warnings and errors, whose text it is given, after they are printed. One at a time; an
  // empty one ends it, and no call is under way then. It must not log.
  using Listener = std::function<void(LogLevel, std::string_view)>;
  void listen(Listener listener);

  // Whether the status line is drawn: `out` is a terminal, and info is enabled.
  bool has_status_line() const;
  // Replaces the line that stays below all others, cut to the terminal's width; empty removes it.
  // Does nothing without has_status_line().
  void status(std::string_view text) noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The process's logger, for all code that is not handed one. It prints like rank 0 until comm::run
// tells it the rank.
Logger& process_log();
void set_process_log(const LogOptions& options);  // process_log().configure()

// What a line says for a value: numbers with a fraction have six digits there.
template <typename T>
decltype(auto) log_text(const T& value) {
  if constexpr (std::is_floating_point_v<T>) {
    return format_number(static_cast<double>(value));
  } else {
    return (value);
  }
}

template <typename... Args>
void log_info(const Args&... args) {  // a line of process_log(), joined by cat()
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
