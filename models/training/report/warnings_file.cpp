#include "shale/models/training/report/warnings_file.h"

#include <fcntl.h>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>

#include "shale/base/host_name.h"
#include "shale/base/json.h"
#include "shale/models/training/report/utc_time.h"

namespace shale::models {
namespace {

constexpr size_t kKept = 1000;  // maximum number of lines kept in memory
constexpr double kAtOnce = 60;  // maximum number of warnings in a burst
constexpr double kPerSecond = 1;
// Maximum tries to get the lock. A stopped rank that holds it must not block the other ranks.
constexpr int kLockTries = 100;
constexpr std::chrono::milliseconds kLockPause{1};

double steady_seconds() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

// Lock for appending. Network file systems append correctly only while the file is locked. If there
// are no locks, or if none is granted in time, the line is written anyway.
class FileLock {
 public:
  explicit FileLock(int fd) : fd_(fd) {
    for (int i = 0; i < kLockTries && !set(F_WRLCK); ++i) {
      if (errno != EAGAIN && errno != EACCES) return;
      std::this_thread::sleep_for(kLockPause);
    }
  }
  ~FileLock() { set(F_UNLCK); }
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  bool set(short type) {
    struct flock lock {};
    lock.l_type = type;
    lock.l_whence = SEEK_SET;
    return fcntl(fd_, F_OFD_SETLK, &lock) == 0;
  }
  int fd_;
};

}  // namespace

WarningsFile::WarningsFile(int rank, Clock clock)
    : before_text_(cat("\", \"host\": ", json_quote(host_name()), ", \"rank\": ", rank)),
      clock_(clock ? std::move(clock) : Clock(steady_seconds)),
      allowance_(kAtOnce),
      allowed_at_s_(clock_()) {
  process_log().listen([this](LogLevel level, std::string_view text) { write(level, text); });
}

WarningsFile::~WarningsFile() {
  process_log().listen({});
  try {
    tell_of_withheld();
    flush();
  } catch (const std::exception&) {
    // Ignores the error for the reason given in write().
  }
  if (fd_ >= 0) close(fd_);
}

void WarningsFile::open(std::string file) {
  const std::lock_guard lock(mutex_);
  path_ = std::move(file);
  flush();
}

void WarningsFile::write(LogLevel level, std::string_view text) noexcept try {
  const std::lock_guard lock(mutex_);
  if (level < LogLevel::kError && !may_warn()) {
    ++withheld_;
    return;
  }
  tell_of_withheld();
  add(level >= LogLevel::kError ? "error" : "warning", text);
  flush();
} catch (const std::exception&) {
  // Ignores the error: a failed report must not end the run, and the line has been printed.
}

void WarningsFile::add(std::string_view level, std::string_view text) {
  if (pending_.size() >= kKept) return;
  pending_.push_back(cat("{\"time\": \"", utc_now(), before_text_, ", \"level\": \"", level,
                         "\", \"text\": ", json_quote(text), "}\n"));
}

bool WarningsFile::may_warn() {
  const double now_s = clock_();
  allowance_ = std::min(kAtOnce, allowance_ + kPerSecond * (now_s - allowed_at_s_));
  allowed_at_s_ = now_s;
  if (allowance_ < 1) return false;
  --allowance_;
  return true;
}

void WarningsFile::tell_of_withheld() {
  const int64_t count = std::exchange(withheld_, 0);
  if (count == 0) return;
  add("warning", cat(count, count == 1 ? " warning was" : " warnings were",
                     " left out here, as there were more than one a second"));
}

void WarningsFile::flush() {
  if (path_.empty() || pending_.empty()) return;
  if (fd_ < 0) fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (fd_ < 0) return;
  std::string lines;
  for (const std::string& line : pending_) lines += line;
  const FileLock lock(fd_);
  if (::write(fd_, lines.data(), lines.size()) >= 0) pending_.clear();
}

}  // namespace shale::models
