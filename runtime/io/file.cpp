#include "shale/runtime/io/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string_view>
#include <utility>

#include "shale/base/error.h"

namespace shale {
namespace {

// Maximum bytes per system call. Linux transfers at most 2 GiB less a page, so this limit keeps the
// following bytes aligned.
constexpr size_t kMaxPiece = size_t{1} << 30;
// Maximum bytes of a write() through the page cache. On Linux 6.18 with ext4, 1.5 GB take 0.8 s in
// calls of 1 MiB, and 0.7 to 5.8 s in longer calls.
constexpr size_t kMaxCachedPiece = size_t{1} << 20;

template <typename Call>
auto repeat_if_interrupted(const Call& call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

[[noreturn]] void fail_at(const std::string& path, std::string_view operation, int error) {
  throw DiskError(
      cat(path, ": ", operation, " failed: ", std::strerror(error), " (errno ", error, ")"));
}

// Opens a file or folder for reading. If `flags` contains O_NOFOLLOW and the last component of the
// name is a symbolic link, this is an error.
FileHandle open_to_read(int folder, const std::string& name, const std::string& path, int flags) {
  FileHandle handle(repeat_if_interrupted(
      [&] { return ::openat(folder, name.c_str(), O_RDONLY | O_CLOEXEC | flags); }));
  if (handle.is_open()) return handle;
  const int error = errno;
  if (error == ENOENT) throw MissingInputError(cat(path, ": no such file or folder"));
  const char* want = (flags & O_DIRECTORY) != 0 ? "a folder" : "a file";
  if (error == ENOTDIR || error == ELOOP) {
    throw DataError(cat(path, ": is a link, or a parent of it is not a folder; expected ", want));
  }
  fail_at(path, "open", error);
}

FileHandle open_new(int folder, const std::string& name) {
  const int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  return FileHandle(
      repeat_if_interrupted([&] { return ::openat(folder, name.c_str(), flags, 0666); }));
}

int try_remove(int folder, const std::string& name, int flags) {
  return repeat_if_interrupted([&] { return ::unlinkat(folder, name.c_str(), flags); }) == 0
             ? 0
             : errno;
}

int sync_folder(int fd) {
  const int error = repeat_if_interrupted([&] { return ::fsync(fd); }) == 0 ? 0 : errno;
  return error == EINVAL ? 0 : error;  // EINVAL: the file system cannot sync this folder
}

}  // namespace

bool is_plain_file_name(std::string_view name) {
  const auto is_plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.' || c == '-';
  };
  return !name.empty() && name.size() <= NAME_MAX && name.front() != '.' &&
         std::all_of(name.begin(), name.end(), is_plain);
}

FileHandle::~FileHandle() {
  if (fd_ >= 0) ::close(fd_);
}

FileHandle::FileHandle(FileHandle&& other) noexcept : fd_(other.release()) {}

FileHandle& FileHandle::operator=(FileHandle&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

int FileHandle::release() {
  return std::exchange(fd_, -1);
}

// ---- File ----

File::File(FileHandle handle, std::string path)
    : handle_(std::move(handle)), path_(std::move(path)) {}

void File::fail(std::string_view operation, int error) const {
  fail_at(path_, operation, error);
}

File File::create(const Folder& folder, const std::string& name) {
  std::string path = folder.path_of(name);
  File file(open_new(folder.handle_.get(), name), std::move(path));
  if (!file.is_open()) file.fail("creating the file", errno);
  return file;
}

std::optional<File> File::try_create(const std::string& path, std::string called) {
  File file(open_new(AT_FDCWD, path), std::move(called));
  if (!file.is_open() && errno == EEXIST) return std::nullopt;
  if (!file.is_open()) file.fail("creating the file", errno);
  return file;
}

File File::open(const Folder& folder, const std::string& name) {
  // O_NONBLOCK, because open() of a named pipe would otherwise wait for a writer.
  const std::string path = folder.path_of(name);
  File file(open_to_read(folder.handle_.get(), name, path, O_NOFOLLOW | O_NONBLOCK), path);
  struct stat info {};
  if (::fstat(file.handle_.get(), &info) != 0) file.fail("fstat", errno);
  if (!S_ISREG(info.st_mode)) throw DataError(cat(path, ": not a regular file"));
  return file;
}

int64_t File::bytes() const {
  struct stat info {};
  if (::fstat(handle_.get(), &info) != 0) fail("fstat", errno);
  return info.st_size;
}

void File::reserve(int64_t bytes) {
  if (bytes <= 0) return;
  const int status = repeat_if_interrupted([&] { return ::fallocate(handle_.get(), 0, 0, bytes); });
  // Other errors mean that the file system cannot reserve space; writes may still succeed.
  if (status != 0 && (errno == ENOSPC || errno == EDQUOT || errno == EFBIG || errno == EIO)) {
    const int error = errno;
    fail(cat("reserving ", bytes, " bytes"), error);
  }
}

void File::bypass_cache(bool bypass) {
  const int flags = ::fcntl(handle_.get(), F_GETFL);
  if (flags < 0) fail("fcntl", errno);
  const int wanted = bypass ? flags | O_DIRECT : flags & ~O_DIRECT;
  bypasses_cache_ = bypass;
  if (::fcntl(handle_.get(), F_SETFL, wanted) != 0 && errno != EINVAL) fail("fcntl", errno);
}

void File::write_at(int64_t offset, std::span<const std::byte> bytes) {
  bool tried_cache = false;
  while (!bytes.empty()) {
    const size_t piece = std::min(bytes.size(), bypasses_cache_ ? kMaxPiece : kMaxCachedPiece);
    const ssize_t written =
        repeat_if_interrupted([&] { return ::pwrite(handle_.get(), bytes.data(), piece, offset); });
    if (written < 0 && (errno == EINVAL || errno == EFAULT) && !std::exchange(tried_cache, true)) {
      // Direct I/O failed, so continues without it. Causes: the file system accepts O_DIRECT but
      // does not support it; a short write left an unaligned rest; or the disk cannot access this
      // memory, which belongs to a device driver.
      bypass_cache(false);
      continue;
    }
    if (written <= 0) {
      // fails after a write of 0 bytes, because retries might never end
      const int error = written == 0 ? EIO : errno;
      fail(cat("writing ", piece, " bytes at byte ", offset), error);
    }
    bytes = bytes.subspan(static_cast<size_t>(written));
    offset += written;
  }
}

void File::read_at(int64_t offset, std::span<std::byte> bytes, std::optional<size_t> want) {
  const int64_t end = offset + static_cast<int64_t>(want.value_or(bytes.size()));
  bool tried_cache = false;
  while (offset < end) {
    const size_t piece = std::min(bytes.size(), kMaxPiece);
    const ssize_t count =
        repeat_if_interrupted([&] { return ::pread(handle_.get(), bytes.data(), piece, offset); });
    if (count < 0 && errno == EINVAL && !std::exchange(tried_cache, true)) {
      bypass_cache(false);  // continues without direct I/O, as in write_at()
      continue;
    }
    if (count < 0) {
      const int error = errno;
      fail(cat("reading ", piece, " bytes at byte ", offset), error);
    }
    if (count == 0) {
      throw DataError(
          cat(path_, ": ends at byte ", offset, ", expected ", end - offset, " more bytes"));
    }
    bytes = bytes.subspan(static_cast<size_t>(count));
    offset += count;
  }
}

void File::resize(int64_t bytes) {
  if (repeat_if_interrupted([&] { return ::ftruncate(handle_.get(), bytes); }) != 0) {
    const int error = errno;
    fail(cat("resizing to ", bytes, " bytes"), error);
  }
}

void File::sync() {
  if (repeat_if_interrupted([&] { return ::fsync(handle_.get()); }) != 0) fail("fsync", errno);
}

void File::close() {
  // Some network file systems report a failed write only on close. EINTR is not an error: Linux has
  // closed the file anyway. close() is never called again, because another thread may already use
  // the descriptor's number.
  if (::close(handle_.release()) != 0 && errno != EINTR) fail("close", errno);
}

void File::expect_sequential_reads() const {
  ::posix_fadvise(handle_.get(), 0, 0, POSIX_FADV_SEQUENTIAL);
}

// ---- Folder ----

Folder::Folder(FileHandle handle, std::string path)
    : handle_(std::move(handle)), path_(std::move(path)) {}

void Folder::fail(std::string_view operation, int error) const {
  fail_at(path_, operation, error);
}

std::string Folder::path_of(const std::string& name) const {
  return (std::filesystem::path(path_) / name).string();
}

Folder Folder::open(const std::string& path) {
  const std::string name = path.empty() ? "." : path;
  return {open_to_read(AT_FDCWD, name, path, O_DIRECTORY), path};
}

Folder Folder::make(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (!path.empty() && !fs::is_directory(path, error)) {
    fs::path target(path);
    if (!target.has_filename()) target = target.parent_path();  // treat "a/b/" as a/b
    const Folder parent = make(target.parent_path().string());
    // It is no error if another process creates the folder at the same time.
    const int fd = parent.handle_.get();
    if (repeat_if_interrupted([&] { return ::mkdirat(fd, target.filename().c_str(), 0777); }) !=
        0) {
      const int mkdir_error = errno;
      if (mkdir_error != EEXIST || !fs::is_directory(path, error)) {
        fail_at(path, "making the folder", mkdir_error);
      }
    }
    parent.sync();
  }
  return open(path);
}

Folder Folder::open_folder(const std::string& name) const {
  const std::string path = path_of(name);
  return {open_to_read(handle_.get(), name, path, O_DIRECTORY | O_NOFOLLOW), path};
}

void Folder::make_folder(const std::string& name) const {
  if (repeat_if_interrupted([&] { return ::mkdirat(handle_.get(), name.c_str(), 0777); }) != 0) {
    const int error = errno;
    fail_at(path_of(name), "making the folder", error);
  }
}

std::vector<std::string> Folder::names() const {
  // Opens a new descriptor, because reading the entries moves its position and closedir() closes
  // it.
  FileHandle handle = open_to_read(handle_.get(), ".", path_, O_DIRECTORY);
  const std::unique_ptr<DIR, int (*)(DIR*)> listing(::fdopendir(handle.get()), ::closedir);
  if (!listing) fail("listing", errno);
  handle.release();
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* entry = ::readdir(listing.get())) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
    errno = 0;
  }
  if (errno != 0) fail("listing", errno);
  std::sort(names.begin(), names.end());
  return names;
}

bool Folder::has(const std::string& name) const {
  struct stat info {};
  if (::fstatat(handle_.get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0) return true;
  const int error = errno;
  if (error != ENOENT) fail_at(path_of(name), "fstatat", error);
  return false;
}

void Folder::rename(const std::string& from, const std::string& to) const {
  const int fd = handle_.get();
  const auto find = [&](const std::string& name, struct stat& info) {
    return ::fstatat(fd, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0;
  };
  struct stat before {
  }, after{};
  const bool was_there = find(from, before);
  if (repeat_if_interrupted([&] { return ::renameat(fd, from.c_str(), fd, to.c_str()); }) != 0) {
    const int error = errno;
    // Not an error if the file has its new name: an NFS client that gets no answer sends the
    // request again, and the second request finds nothing left to rename.
    if (error == ENOENT && was_there && find(to, after) && after.st_ino == before.st_ino) return;
    fail_at(path_of(from), cat("renaming to ", to), error);
  }
}

void Folder::remove_file(const std::string& name) const {
  if (const int error = try_remove(handle_.get(), name, 0); error != 0) {
    fail_at(path_of(name), "removing", error);
  }
}

void Folder::remove_all(const std::string& name) const {
  const int file_error = try_remove(handle_.get(), name, 0);
  if (file_error == 0) return;
  if (file_error != EISDIR) fail_at(path_of(name), "removing", file_error);
  const Folder folder = open_folder(name);
  for (const std::string& inside : folder.names()) folder.remove_all(inside);
  if (const int error = try_remove(handle_.get(), name, AT_REMOVEDIR); error != 0) {
    fail_at(path_of(name), "removing the folder", error);
  }
}

void Folder::sync() const {
  if (const int error = sync_folder(handle_.get()); error != 0) fail("fsync", error);
}

}  // namespace shale
