#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "shale/base/log.h"

namespace shale::models {

// Warnings and errors of process_log(), of all ranks in one file, in the order in which they came:
// a line of JSON each, with the time (UTC), host and rank. Every rank writes its own, so that none
// is lost with the rank that reads the others; the folder is one that all of them see.
//
// A rank writes a warning a second and up to 60 at once; of those beyond that a line says how many
// there were. Errors are all written.
class WarningsFile {
 public:
  // Seconds from some point in time; tests set their own.
  using Clock = std::function<double()>;

  // Listens from now on, and keeps what it hears for open(). Without a clock: the system's.
  explicit WarningsFile(int rank, Clock clock = {});
  ~WarningsFile();
  WarningsFile(const WarningsFile&) = delete;
  WarningsFile& operator=(const WarningsFile&) = delete;

  // Appends to `file` from now on. It is made with the first line. What cannot be written is kept
  // and tried again with the next line; beyond 1000 lines it is lost.
  void open(std::string file);
  // What is not in the log, such as the error that ends a run.
  void write(LogLevel level, std::string_view text) noexcept;

 private:
  void flush();
  void add(std::string_view level, std::string_view text);
  bool may_warn();
  void tell_of_withheld();

  const std::string before_text_;  // host and rank
  const Clock clock_;
  std::mutex mutex_;
  std::string path_;
  std::vector<std::string> pending_;
  double allowance_ = 0;  // warnings that may be written now
  double allowed_at_s_ = 0;
  int64_t withheld_ = 0;
  int fd_ = -1;
};

}  // namespace shale::models
