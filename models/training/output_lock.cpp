#include "shale/models/training/output_lock.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>
#include <thread>

#include "shale/base/error.h"
#include "shale/base/host_name.h"
#include "shale/base/json.h"
#include "shale/models/training/output_folder.h"
#include "shale/runtime/io/json_object.h"

namespace shale::models {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMaxBytes = 4096;  // maximum file size; a larger file is not a lock

std::string word_in(const char* path) {
  std::ifstream file(path);
  std::string word;
  file >> word;
  return word;
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

bool is_this_host(const LockOwner& owner) {
  const LockOwner self = this_process();
  return owner.host == self.host || (!owner.boot.empty() && owner.boot == self.boot);
}

// Returns true if the owner, a process of this host, is alive. A process with the same pid but
// another start time is a different one.
bool is_alive(const LockOwner& owner) {
  const LockOwner self = this_process();
  const bool same_start_of_host = owner.boot == self.boot;
  return same_start_of_host && owner.started != 0 && start_of(owner.pid) == owner.started;
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

// Returns true if a lock granted here excludes every process, on any host, that can see the file.
bool locks_hold_everywhere(const std::string& path) {
  struct statfs system {};
  if (statfs(path.c_str(), &system) != 0) return false;
  constexpr long kXfs = 0x58465342, kZfs = 0x2fc12fc1;  // magic numbers that no header defines
  switch (system.f_type) {
    case EXT4_SUPER_MAGIC:
    case BTRFS_SUPER_MAGIC:
    case F2FS_SUPER_MAGIC:
    case TMPFS_MAGIC:
    case OVERLAYFS_SUPER_MAGIC:
    case kXfs:
    case kZfs: return true;  // file systems that only this host can mount
    case NFS_SUPER_MAGIC: break;
    default: return false;
  }
  const std::string options = mount_options(path);
  for (const char* local : {"nolock", "local_lock=flock", "local_lock=all"}) {
    if (options.find(local) != options.npos) return false;
  }
  return !options.empty();
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
  if (!owner) return "another run, which has not said its name";
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

// Returns true if the owner of a lock file is known to be gone. locked: this process could lock it.
bool is_gone(const std::optional<LockOwner>& owner, bool locked, const std::string& path) {
  if (!locked) return false;
  return owner && is_this_host(*owner) ? !is_alive(*owner) : locks_hold_everywhere(path);
}

bool is_still_at(int fd, const std::string& path) {
  struct stat mine {
  }, there{};
  return fstat(fd, &mine) == 0 && lstat(path.c_str(), &there) == 0 && mine.st_ino == there.st_ino &&
         mine.st_dev == there.st_dev;
}

}  // namespace

LockOwner this_process() {
  return {.host = host_name(),
          .boot = word_in("/proc/sys/kernel/random/boot_id"),
          .pid = getpid(),
          .started = start_of(getpid())};
}

// Returns the owner's description; empty: the lock is ours.
std::string OutputLock::try_to_take() {
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
  const bool locked = flock(file.get(), LOCK_EX | LOCK_NB) == 0;
  const bool held = !locked && errno == EWOULDBLOCK;  // other errors: the file system has no locks
  const std::string text = read_all(file.get());
  const std::optional<LockOwner> owner = parse_owner(text);
  if (held) return describe(owner);
  // Another run has removed the file at its end, or replaced it.
  if (!is_still_at(file.get(), path_)) return "another run, which has just begun or ended";
  if (!is_new && !text.empty() && !is_gone(owner, locked, path_)) {
    return cat(describe(owner), ", which may still run, as this cannot be checked from here");
  }
  // Without file locks, another run may be about to write its name to an empty file.
  if (!is_new && text.empty() && !locked) return describe(owner);
  write_owner(file.get(), path_);
  file_ = std::move(file);
  return {};
}

OutputLock::OutputLock(const std::string& folder, double patience_s)
    : path_(file_in(folder, "lock")) {
  const auto end = Clock::now() + std::chrono::duration<double>(patience_s);
  for (;;) {
    const std::string owner = try_to_take();
    if (owner.empty()) return;
    if (Clock::now() > end) {
      throw ConfigError(cat("--out ", folder, " is in use by ", owner,
                            "; use another --out, or, if that run is gone, remove ", path_));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

OutputLock::~OutputLock() {
  // Removed while locked: a process that opened the file earlier detects that it was replaced.
  if (is_still_at(file_.get(), path_)) unlink(path_.c_str());
}

std::optional<bool> is_in_use(const std::string& folder) {
  const std::string path = file_in(folder, "lock");
  const FileHandle file(open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  if (!file.is_open()) return errno == ENOENT ? std::optional(false) : std::nullopt;
  const bool locked = flock(file.get(), LOCK_SH | LOCK_NB) == 0;  // until the file is closed
  if (!locked && errno == EWOULDBLOCK) return true;
  const std::optional<LockOwner> owner = parse_owner(read_all(file.get()));
  if (is_gone(owner, locked, path)) return false;
  return owner && is_this_host(*owner) && is_alive(*owner) ? std::optional(true) : std::nullopt;
}

}  // namespace shale::models
