#include "shale/models/training/output_lock.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <fstream>
#include <optional>
#include <sstream>
#include <thread>
#include <utility>

#include "shale/base/clock.h"
#include "shale/base/error.h"
#include "shale/base/host_name.h"
#include "shale/base/json.h"
#include "shale/base/log.h"
#include "shale/models/training/output_folder.h"
#include "shale/models/training/report/progress.h"
#include "shale/runtime/io/json_object.h"

namespace shale::models {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMaxBytes = 4096;  // maximum file size; a larger file is not a lock

// Returns the boot id of this host and the namespace of its process numbers. Containers on one host
// have the same boot id, but different processes.
std::string boot_of_processes() {
  const std::string identity = host_identity();
  std::array<char, 64> ns{};
  if (readlink("/proc/self/ns/pid", ns.data(), ns.size() - 1) < 0) return "";
  return cat(identity.substr(identity.rfind(' ') + 1), " ", ns.data());
}

// Returns the start time of the process; 0: no such process.
int64_t start_of(int64_t pid) {
  std::ifstream file(cat("/proc/", pid, "/stat"));
  std::string text;
  std::getline(file, text, '\0');
  // The name, in parentheses, may contain blanks and parentheses; the start time is field 20 after
  // it.
  const size_t end = text.rfind(')');
  if (end == text.npos) return 0;
  std::istringstream fields(text.substr(end + 1));
  std::string field;
  for (int i = 0; i < 19; ++i) fields >> field;
  int64_t ticks = 0;
  fields >> ticks;
  return ticks;
}

// Returns true if the owner is alive; nullopt: this process cannot see the processes of its host. A
// process with the same pid and another start time is not the owner.
std::optional<bool> is_alive(const LockOwner& owner) {
  const LockOwner self = this_process();
  if (owner.boot.empty() || owner.boot != self.boot) return std::nullopt;
  return owner.started != 0 && start_of(owner.pid) == owner.started;
}

// Returns the options of the mount that contains this path.
std::string mount_options(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) return "";
  const std::string device = cat(major(info.st_dev), ":", minor(info.st_dev));
  std::ifstream mounts("/proc/self/mountinfo");
  for (std::string line; std::getline(mounts, line);) {
    std::istringstream fields(line);
    std::string id, parent, number;
    fields >> id >> parent >> number;
    if (number == device) return line;
  }
  return "";
}

// Returns the f_type of statfs() for the file system with this path; 0: unknown.
long system_type(const std::string& path) {
  struct statfs system {};
  return statfs(path.c_str(), &system) == 0 ? static_cast<long>(system.f_type) : 0;
}

// Returns true if a lock granted here excludes every process, on any host, that can see the file.
bool locks_hold_everywhere(const std::string& path, const LockOptions& options) {
  constexpr long kXfs = 0x58465342, kZfs = 0x2fc12fc1;  // magic numbers that no header defines
  switch (options.system_type != nullptr ? options.system_type(path) : system_type(path)) {
    case EXT4_SUPER_MAGIC:
    case BTRFS_SUPER_MAGIC:
    case F2FS_SUPER_MAGIC:
    case TMPFS_MAGIC:
    case OVERLAYFS_SUPER_MAGIC:
    case kXfs:
    case kZfs: return true;  // only this host can mount these file systems
    case NFS_SUPER_MAGIC: break;
    default: return false;
  }
  const std::string mounted = mount_options(path);
  for (const char* local : {"nolock", "local_lock=flock", "local_lock=all"}) {
    if (mounted.find(local) != mounted.npos) return false;
  }
  return !mounted.empty();
}

std::string read_all(int fd) {
  std::string text(kMaxBytes, '\0');
  const ssize_t count = pread(fd, text.data(), text.size(), 0);
  text.resize(count > 0 ? static_cast<size_t>(count) : 0);
  return text;
}

std::optional<LockOwner> parse_owner(const std::string& text) {
  try {
    const JsonObject json(text, "lock");
    return LockOwner{.host = json.text("host"),
                     .boot = json.text("boot", ""),
                     .pid = json.integer("pid"),
                     .started = json.integer("started")};
  } catch (const DataError&) {
    return std::nullopt;
  }
}

std::string describe(const std::optional<LockOwner>& owner) {
  if (!owner) return "another run, which has not written its name yet";
  return cat("process ", owner->pid, " on host ", json_quote(owner->host));
}

void write_owner(int fd, const std::string& path) {
  const LockOwner self = this_process();
  const Json json = {
      {"host", self.host}, {"boot", self.boot}, {"pid", self.pid}, {"started", self.started}};
  const std::string text = json.dump() + "\n";
  const bool written = ftruncate(fd, 0) == 0 &&
                       pwrite(fd, text.data(), text.size(), 0) == ssize_t(text.size()) &&
                       fsync(fd) == 0;
  if (!written) throw DiskError(cat(path, ": writing failed: ", std::strerror(errno)));
}

bool is_still_at(int fd, const std::string& path) {
  struct stat mine {
  }, there{};
  return fstat(fd, &mine) == 0 && lstat(path.c_str(), &there) == 0 && mine.st_ino == there.st_ino &&
         mine.st_dev == there.st_dev;
}

// Whether the owner of a lock file still exists, as far as this process can find out.
enum class Owner { kGone, kAlive, kUnknown };

// Returns whether the owner still exists. age_s: returns the time since the owner last touched the
// lock file.
template <typename Age>
Owner state_of(const std::optional<LockOwner>& owner, bool locked, const std::string& path,
               const LockOptions& options, const Age& age_s) {
  const std::optional<bool> alive = owner ? is_alive(*owner) : std::nullopt;
  if (alive) return *alive ? Owner::kAlive : Owner::kGone;
  if (locked && locks_hold_everywhere(path, options)) return Owner::kGone;
  return age_s() >= options.silence_s ? Owner::kGone : Owner::kUnknown;
}

double changed_at(int fd) {
  struct stat info {};
  if (fstat(fd, &info) != 0) return 0;
  return static_cast<double>(info.st_mtim.tv_sec) +
         1e-9 * static_cast<double>(info.st_mtim.tv_nsec);
}

// Returns the time since the lock was last touched; 0: unknown. Compares with a new file, which has
// the time of the file system's clock.
double age_of(int fd, const std::string& path) {
  const std::string name = cat(path, "-clock-", host_name(), "-", getpid());
  const FileHandle now(open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!now.is_open()) return 0;
  // Some file systems set the time only when a file is written.
  const bool written = write(now.get(), "\n", 1) == 1;
  const double age_s = written ? changed_at(now.get()) - changed_at(fd) : 0;
  unlink(name.c_str());
  return age_s;
}

}  // namespace

LockOwner this_process() {
  return {.host = host_name(),
          .boot = boot_of_processes(),
          .pid = getpid(),
          .started = start_of(getpid())};
}

struct OutputLock::Attempt {
  Owner state = Owner::kGone;          // kGone: this process has taken the lock
  std::string owner = {};              // description of the owner
  std::optional<double> changed = {};  // time when the owner last touched the file
};

OutputLock::Attempt OutputLock::try_to_take() {
  const int flags = O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK;
  bool is_new = true;
  FileHandle file(open(path_.c_str(), flags | O_EXCL, 0666));
  if (!file.is_open() && errno == EEXIST) {
    is_new = false;
    file = FileHandle(open(path_.c_str(), flags, 0666));
  }
  if (!file.is_open()) {
    throw DiskError(cat(path_, ": opening failed: ", std::strerror(errno), " (errno ", errno, ")"));
  }
  const auto lock = options_.flock != nullptr ? options_.flock : flock;
  const bool locked = lock(file.get(), LOCK_EX | LOCK_NB) == 0;
  // Any other error: the file system has no locks.
  const bool held = !locked && errno == EWOULDBLOCK;
  const std::string text = read_all(file.get());
  const std::optional<LockOwner> owner = parse_owner(text);
  Attempt attempt{.owner = describe(owner), .changed = changed_at(file.get())};
  if (held) {
    attempt.state = owner && is_alive(*owner) == true ? Owner::kAlive : Owner::kUnknown;
    return attempt;
  }
  // Another run has removed the file at its end, or replaced it.
  if (!is_still_at(file.get(), path_)) {
    return {.state = Owner::kUnknown, .owner = "another run, which has just begun or ended"};
  }
  if (!is_new) {
    attempt.state =
        state_of(owner, locked, path_, options_, [&] { return age_of(file.get(), path_); });
    if (attempt.state != Owner::kGone) return attempt;
  }
  write_owner(file.get(), path_);
  if (!is_new && !(locked && locks_hold_everywhere(path_, options_))) {
    // Another process may take the lock of the same gone owner at the same time. The last one to
    // write its name wins.
    std::this_thread::sleep_for(std::chrono::duration<double>(options_.settle_s));
    const FileHandle again(open(path_.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
    const auto winner = again.is_open() ? parse_owner(read_all(again.get())) : std::nullopt;
    if (winner != this_process()) return {.state = Owner::kUnknown, .owner = describe(winner)};
  }
  file_ = std::move(file);
  return attempt;
}

OutputLock::OutputLock(const std::string& folder, const LockOptions& options)
    : options_(options), path_(file_in(folder, "lock")) {
  const auto start = Clock::now();
  std::optional<double> first_change;
  bool told = false;
  for (;;) {
    const Attempt attempt = try_to_take();
    if (attempt.state == Owner::kGone) break;
    const double waited = seconds_since(start);
    // If the file changes while this process waits, its owner lives, on whatever host.
    const bool changes = first_change && attempt.changed && attempt.changed != first_change;
    if (!first_change) first_change = attempt.changed;
    const bool lives = attempt.state == Owner::kAlive || changes;
    if (waited >= std::min(options.patience_s, lives ? options.ending_s : options.patience_s)) {
      const std::string in_use = cat("--out ", folder, " is in use by ", attempt.owner);
      if (attempt.state == Owner::kAlive) throw ConfigError(cat(in_use, "; use another --out"));
      throw UnavailableError(cat(in_use,
                                 lives ? "; use another --out"
                                       : ", which may still run, as this cannot be checked "
                                         "on this host; use another --out",
                                 ", or, if that run is gone, remove ", path_));
    }
    if (waited > options.ending_s && !std::exchange(told, true)) {
      log_info("--out ", folder, " was in use by ", attempt.owner, "; waiting up to ",
               format_duration(options.patience_s), " for its heartbeat");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(waited > options.ending_s ? 1000 : 50));
  }
  thread_ = std::thread([this] { touch_until_end(); });
}

void OutputLock::touch_until_end() {
  std::unique_lock guard(mutex_);
  const std::chrono::duration<double> pause(options_.touch_s);
  // Ignores a failure: the disk may be away for a while, and check() detects a lost lock.
  while (!ends_.wait_for(guard, pause, [this] { return is_ending_; })) {
    static_cast<void>(futimens(file_.get(), nullptr));
  }
}

void OutputLock::check() const {
  const FileHandle file(open(path_.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!file.is_open()) return;  // a user has removed it; no other run has taken it
  const std::optional<LockOwner> owner = parse_owner(read_all(file.get()));
  if (!owner || *owner == this_process()) return;
  throw UnavailableError(cat(path_, ": ", describe(owner),
                             " has taken over this folder, because this process did not touch its "
                             "lock file for some minutes; this process saves nothing more there"));
}

OutputLock::~OutputLock() {
  {
    const std::lock_guard guard(mutex_);
    is_ending_ = true;
  }
  ends_.notify_all();
  if (thread_.joinable()) thread_.join();
  // Removes the file while it is locked, so that a process that opened it before detects that it is
  // no longer at this path.
  const bool is_ours = parse_owner(read_all(file_.get())) == this_process();
  if (is_ours && is_still_at(file_.get(), path_)) unlink(path_.c_str());
}

std::optional<bool> is_in_use(const std::string& folder) {
  const std::string path = file_in(folder, "lock");
  const FileHandle file(open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  if (!file.is_open()) return errno == ENOENT ? std::optional(false) : std::nullopt;
  // Holds the lock until the file is closed.
  const bool locked = flock(file.get(), LOCK_SH | LOCK_NB) == 0;
  if (!locked && errno == EWOULDBLOCK) return true;
  const std::optional<LockOwner> owner = parse_owner(read_all(file.get()));
  // Compares with the clock of this host, which is good enough for a report and leaves the folder
  // as it is.
  const Owner state = state_of(owner, locked, path, {}, [&] {
    return static_cast<double>(std::time(nullptr)) - changed_at(file.get());
  });
  if (state == Owner::kUnknown) return std::nullopt;
  return state == Owner::kAlive;
}

}  // namespace shale::models
