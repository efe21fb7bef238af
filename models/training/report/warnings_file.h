#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "shale/base/log.h"

namespace shale::models {

// File with the warnings and errors that process_log() of all ranks logs, in the order of writing.
// A line is JSON with time (UTC), host and rank. Each rank writes its own lines, so that no rank
// depends on another one. The folder must be visible to all ranks.
//
// A rank writes one warning per second on average, and up to 60 at once; a line reports how many
// were omitted. Errors are always written.
class WarningsFile {
 public:
  // Returns seconds since an arbitrary point in time; tests supply their own.
  using Clock = std::function<double()>;

  // Starts to collect messages, and keeps them until open(). The default clock is the system's.
  explicit WarningsFile(int rank, Clock clock = {});
  ~WarningsFile();
  WarningsFile(const WarningsFile&) = delete;
  WarningsFile& operator=(const WarningsFile&) = delete;

  // Appends to `file` from now on. The first line creates the file. Lines that cannot be written
  // are kept and retried with the next line; beyond 1000 lines they are lost.
  void open(std::string file);
  // Writes a message that is not in the log, such as the error that ends a run.
  void write(LogLevel level, std::string_view text) noexcept;

 private:
  void flush();
  void add(std::string_view level, std::string_view text);
  bool may_warn();
  void tell_of_withheld();

  const std::string before_text_;  // beginning of every line: host and rank
  const Clock clock_;
  std::mutex mutex_;
  std::string path_;
  std::vector<std::string> pending_;
  double allowance_ = 0;  // number of warnings that may be written now
  double allowed_at_s_ = 0;
  int64_t withheld_ = 0;
  int fd_ = -1;
};

}  // namespace shale::models
