// LD_PRELOAD library that wraps the C library's disk functions and makes chosen calls fail. It
// numbers all calls on paths in one folder from 1, over all threads. Environment variables:
//
// - SHALE_FAULT_UNDER=FOLDER: the folder, an absolute path
// - SHALE_FAULT_LOG=FILE: appends each of these calls that succeeds, and what the program prints,
//   to this file (disk_call.h)
// - SHALE_FAULT_AT=N: number of the first call that fails
// - SHALE_FAULT_CALLS=N: number of calls in a row that fail; default: 1
// - SHALE_FAULT_KIND=KIND: how the calls fail. enospc, eio: with this error; eintr: nothing was
//   done, and the caller must try again; short: a read or write transfers half of its bytes; full:
//   this and all later calls find no space for new data or names; kill: the process dies in the
//   call; lost: every rename is done but returns ENOENT, as when an NFS server's answer was lost
// - SHALE_FAULT_WHILE=FILE: while this file exists, all calls that need space for data or names
//   fail, as enospc or eio
// - SHALE_FAULT_DELAY_MS=N: delays every open by N ms, as throttled storage does
//
// Only functions that Shale uses are wrapped. Calls inside other libraries (stdio) are not seen.

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "shale/test/faults/disk_call.h"

namespace {

using shale::test::DiskCall;
using shale::test::DiskOp;
using shale::test::takes_room;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

struct Settings {
  std::string under = variable("SHALE_FAULT_UNDER");
  std::string kind = variable("SHALE_FAULT_KIND");
  std::string fault_while = variable("SHALE_FAULT_WHILE");
  long fault_at = std::atol(variable("SHALE_FAULT_AT").c_str());
  long fault_calls = std::max(std::atol(variable("SHALE_FAULT_CALLS").c_str()), 1L);
  long delay_ms = std::atol(variable("SHALE_FAULT_DELAY_MS").c_str());
  int log = -1;
  std::atomic<long> calls = 0;

  Settings() {
    const std::string path = variable("SHALE_FAULT_LOG");
    if (path.empty()) return;
    const int flags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC;
    log = static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path.c_str(), flags, 0666));
  }
};

Settings& settings() {
  static Settings instance;
  return instance;
}

// Returns the C library's implementation of a function that this library replaces.
template <typename Function>
Function real(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

std::string path_of(int fd) {
  char target[4096];
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  const ssize_t size = ::readlink(link.c_str(), target, sizeof target);
  return size < 0 ? std::string() : std::string(target, static_cast<size_t>(size));
}

std::string path_of(int folder, const char* name) {
  if (name[0] == '/') return name;
  char current[4096];
  const std::string base = folder != AT_FDCWD ? path_of(folder) : ::getcwd(current, sizeof current);
  return base + "/" + name;
}

void record(const DiskCall& call) {
  if (settings().log < 0) return;
  const std::string text = encode(call);
  ::syscall(SYS_write, settings().log, text.data(), text.size());
}

// One intercepted call, which may fail. Calls outside the folder are not counted.
class Call {
 public:
  Call(DiskOp op, const char* name, std::string path) {
    call_.op = op;
    call_.name = name;
    call_.path = std::move(path);
    const std::string& under = settings().under;
    if (under.empty() || call_.path.compare(0, under.size(), under) != 0) return;
    is_counted_ = true;
    const long number = ++settings().calls;
    const std::string& kind = settings().kind;
    if (kind == "full" && settings().fault_at > 0 && number >= settings().fault_at &&
        takes_room(op)) {
      error_ = ENOSPC;
    }
    if (kind == "lost" && op == DiskOp::kRename) lost_error_ = ENOENT;
    const std::string& switch_file = settings().fault_while;
    const bool is_on = !switch_file.empty() && takes_room(op) &&
                       ::syscall(SYS_faccessat, AT_FDCWD, switch_file.c_str(), F_OK) == 0;
    const long since = number - settings().fault_at;
    const bool is_next = settings().fault_at > 0 && since >= 0 && since < settings().fault_calls;
    if (!is_next && !is_on) return;
    if (kind == "enospc") error_ = ENOSPC;
    if (kind == "eio") error_ = EIO;
    if (kind == "eintr") error_ = EINTR;
    if (kind == "kill") ::raise(SIGKILL);
    is_short_ = kind == "short";
  }

  bool is_counted() const { return is_counted_; }
  DiskCall& details() { return call_; }
  int error() const { return error_; }
  // Number of bytes that a read or write of `size` bytes transfers under this fault.
  size_t limit(size_t size) const { return is_short_ && size > 1 ? size / 2 : size; }

  // Returns -1 and sets errno if the fault makes the call fail, otherwise the result of `run`.
  template <typename Run>
  auto operator()(const Run& run) -> decltype(run()) {
    if (error_ != 0) {
      errno = error_;
      return -1;
    }
    const auto result = run();
    const int saved = errno;
    if (is_counted_ && result >= 0) {
      if (call_.op == DiskOp::kWrite) call_.data.resize(static_cast<size_t>(result));
      record(call_);
    }
    errno = saved;
    if (lost_error_ != 0 && result >= 0) {
      errno = lost_error_;
      return -1;
    }
    return result;
  }

 private:
  DiskCall call_;
  bool is_counted_ = false;
  bool is_short_ = false;
  int error_ = 0;
  int lost_error_ = 0;  // of a call that is done
};

int open_call(const char* name, int folder, const char* path, int flags, mode_t mode) {
  const bool is_new = (flags & O_CREAT) != 0;
  Call call(is_new ? DiskOp::kCreate : DiskOp::kOther, name, path_of(folder, path));
  if (call.is_counted() && settings().delay_ms > 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(settings().delay_ms));
  }
  return call([&] { return real<decltype(&::openat)>("openat")(folder, path, flags, mode); });
}

mode_t mode_argument(int flags, va_list arguments) {
  return (flags & O_CREAT) != 0 ? va_arg(arguments, mode_t) : 0;
}

bool is_folder(int fd) {
  struct stat info {};
  return ::fstat(fd, &info) == 0 && S_ISDIR(info.st_mode);
}

ssize_t write_call(const char* name, int fd, const void* data, size_t size, off_t offset) {
  Call call(DiskOp::kWrite, name, path_of(fd));
  call.details().offset = offset;
  call.details().data.assign(static_cast<const char*>(data), size);
  return call(
      [&] { return real<decltype(&::pwrite)>("pwrite")(fd, data, call.limit(size), offset); });
}

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_argument(flags, arguments);
  va_end(arguments);
  return open_call("open", AT_FDCWD, path, flags, mode);
}

int open64(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_argument(flags, arguments);
  va_end(arguments);
  return open_call("open64", AT_FDCWD, path, flags, mode);
}

int openat(int folder, const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_argument(flags, arguments);
  va_end(arguments);
  return open_call("openat", folder, path, flags, mode);
}

int openat64(int folder, const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_argument(flags, arguments);
  va_end(arguments);
  return open_call("openat64", folder, path, flags, mode);
}

int close(int fd) {
  const int flags = ::fcntl(fd, F_GETFL);
  // Counts only files opened for writing: closing other files cannot report a write error.
  const bool is_written = flags >= 0 && (flags & O_ACCMODE) != O_RDONLY;
  Call call(DiskOp::kOther, "close", is_written ? path_of(fd) : "");
  const int result =
      real<decltype(&::close)>("close")(fd);  // the descriptor is gone even if the fault fires
  return call([&] { return result; });
}

ssize_t pwrite(int fd, const void* data, size_t size, off_t offset) {
  return write_call("pwrite", fd, data, size, offset);
}

ssize_t pwrite64(int fd, const void* data, size_t size, off64_t offset) {
  return write_call("pwrite64", fd, data, size, offset);
}

ssize_t write(int fd, const void* data, size_t size) {
  if (fd == STDOUT_FILENO) {
    DiskCall printed{.op = DiskOp::kPrint, .name = "write"};
    printed.data.assign(static_cast<const char*>(data), size);
    record(printed);
  }
  Call call(DiskOp::kWrite, "write", path_of(fd));
  call.details().data.assign(static_cast<const char*>(data), size);
  const bool appends = (::fcntl(fd, F_GETFL) & O_APPEND) != 0;
  call.details().offset = ::lseek(fd, 0, appends ? SEEK_END : SEEK_CUR);
  return call([&] { return real<decltype(&::write)>("write")(fd, data, call.limit(size)); });
}

ssize_t pread(int fd, void* data, size_t size, off_t offset) {
  Call call(DiskOp::kOther, "pread", path_of(fd));
  return call(
      [&] { return real<decltype(&::pread)>("pread")(fd, data, call.limit(size), offset); });
}

ssize_t pread64(int fd, void* data, size_t size, off64_t offset) {
  Call call(DiskOp::kOther, "pread64", path_of(fd));
  return call(
      [&] { return real<decltype(&::pread64)>("pread64")(fd, data, call.limit(size), offset); });
}

int fallocate(int fd, int mode, off_t offset, off_t size) {
  Call call(DiskOp::kReserve, "fallocate", path_of(fd));
  call.details().offset = offset + size;
  return call([&] { return real<decltype(&::fallocate)>("fallocate")(fd, mode, offset, size); });
}

int ftruncate(int fd, off_t size) noexcept {
  Call call(DiskOp::kResize, "ftruncate", path_of(fd));
  call.details().offset = size;
  return call([&] { return real<decltype(&::ftruncate)>("ftruncate")(fd, size); });
}

int fsync(int fd) {
  Call call(is_folder(fd) ? DiskOp::kSyncFolder : DiskOp::kSyncFile, "fsync", path_of(fd));
  return call([&] { return real<decltype(&::fsync)>("fsync")(fd); });
}

int mkdirat(int folder, const char* path, mode_t mode) noexcept {
  Call call(DiskOp::kMakeFolder, "mkdirat", path_of(folder, path));
  return call([&] { return real<decltype(&::mkdirat)>("mkdirat")(folder, path, mode); });
}

int mkdir(const char* path, mode_t mode) noexcept {
  Call call(DiskOp::kMakeFolder, "mkdir", path_of(AT_FDCWD, path));
  return call([&] { return real<decltype(&::mkdir)>("mkdir")(path, mode); });
}

int renameat(int from_folder, const char* from, int to_folder, const char* to) noexcept {
  Call call(DiskOp::kRename, "renameat", path_of(from_folder, from));
  call.details().to = path_of(to_folder, to);
  return call(
      [&] { return real<decltype(&::renameat)>("renameat")(from_folder, from, to_folder, to); });
}

int rename(const char* from, const char* to) noexcept {
  Call call(DiskOp::kRename, "rename", path_of(AT_FDCWD, from));
  call.details().to = path_of(AT_FDCWD, to);
  return call([&] { return real<decltype(&::rename)>("rename")(from, to); });
}

int unlinkat(int folder, const char* path, int flags) noexcept {
  Call call(DiskOp::kRemove, "unlinkat", path_of(folder, path));
  return call([&] { return real<decltype(&::unlinkat)>("unlinkat")(folder, path, flags); });
}

int unlink(const char* path) noexcept {
  Call call(DiskOp::kRemove, "unlink", path_of(AT_FDCWD, path));
  return call([&] { return real<decltype(&::unlink)>("unlink")(path); });
}

}  // extern "C"
