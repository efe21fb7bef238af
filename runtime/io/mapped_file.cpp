#include "shale/runtime/io/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "shale/base/error.h"
#include "shale/base/parse.h"
#include "shale/runtime/io/file.h"

namespace shale {
namespace {

// Makes a path printable: names of files from other people may contain control characters.
std::string in_message(const std::string& path) {
  return excerpt(path, /*longest=*/4096);
}

[[noreturn]] void fail_open(const std::string& path, int error) {
  if (error == ENOENT || error == ENOTDIR) {
    throw MissingInputError(cat(in_message(path), ": no such file"));
  }
  throw DataError(cat(in_message(path), ": cannot be opened: ", std::strerror(error)));
}

size_t checked_size(const std::string& path, const struct stat& info, bool allow_empty) {
  if (S_ISDIR(info.st_mode))
    throw DataError(cat(in_message(path), ": is a folder, expected a file"));
  if (!S_ISREG(info.st_mode)) throw DataError(cat(in_message(path), ": is not a regular file"));
  if (info.st_size == 0 && !allow_empty) {
    throw DataError(cat(in_message(path), ": the file is empty, expected at least one byte"));
  }
  return static_cast<size_t>(info.st_size);
}

}  // namespace

MappedFile::MappedFile(const std::string& path, const MapOptions& options) : path_(path) {
  // O_NONBLOCK, because open() of a named pipe would otherwise wait for a writer.
  const FileHandle file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) fail_open(path, errno);
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) {
    throw DataError(cat(in_message(path), ": fstat failed: ", std::strerror(errno)));
  }
  const size_t size = checked_size(path, info, options.allow_empty);
  if (size == 0) return;  // mmap rejects a length of 0
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.get(), 0);
  if (data == MAP_FAILED) {
    const int error = errno;
    const std::string message =
        cat(in_message(path), ": ", size, " bytes cannot be mapped: ", std::strerror(error));
    // ENOMEM means that this process has reached a limit; the file is good.
    if (error == ENOMEM) throw OutOfMemoryError(message);
    throw DataError(message);
  }
  bytes_ = {static_cast<const std::byte*>(data), size};
  unreadable_ = std::make_unique<UnreadablePages>(bytes_);
  if (options.pattern != AccessPattern::kNormal) advise(options.pattern);
}

MappedFile::~MappedFile() {
  unreadable_.reset();
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      bytes_(std::exchange(other.bytes_, {})),
      unreadable_(std::move(other.unreadable_)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(bytes_, other.bytes_);
  std::swap(unreadable_, other.unreadable_);
  return *this;
}

void MappedFile::check() const {
  if (unreadable_ == nullptr || !unreadable_->found()) return;
  throw DataError(cat(in_message(path_), ": had ", bytes_.size(),
                      " bytes, and became shorter or unreadable while it was read"));
}

void MappedFile::will_need(std::span<const std::byte> part) const {
  static const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const size_t before = reinterpret_cast<uintptr_t>(part.data()) % page;
  ::madvise(const_cast<std::byte*>(part.data()) - before, before + part.size(), MADV_WILLNEED);
}

void MappedFile::advise(AccessPattern pattern) const {
  if (bytes_.empty()) return;
  int advice = MADV_NORMAL;
  if (pattern == AccessPattern::kSequential) advice = MADV_SEQUENTIAL;
  if (pattern == AccessPattern::kRandom) advice = MADV_RANDOM;
  // Ignores errors, because without the advice reads are only slower.
  ::madvise(const_cast<std::byte*>(bytes_.data()), bytes_.size(), advice);
}

}  // namespace shale
