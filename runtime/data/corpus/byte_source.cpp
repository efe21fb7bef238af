#include "shale/runtime/data/corpus/byte_source.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <utility>

#include "shale/base/error.h"

namespace shale {
namespace {

enum class Compression { kNone, kGzip, kZstd };

// Returns true if the path ends with `ending`, ignoring case.
bool ends_with(std::string_view path, std::string_view ending) {
  return path.size() >= ending.size() &&
         std::equal(ending.begin(), ending.end(), path.end() - std::ssize(ending),
                    [](char want, unsigned char is) { return want == std::tolower(is); });
}

Compression compression_of(std::string_view path) {
  if (ends_with(path, ".gz")) return Compression::kGzip;
  return ends_with(path, ".zst") ? Compression::kZstd : Compression::kNone;
}

class PlainSource final : public ByteSource {
 public:
  explicit PlainSource(MappedFile file) : file_(std::move(file)) {}

  size_t read(std::span<char> to) override {
    const std::string_view rest = file_.text().substr(at_);
    const size_t count = std::min(to.size(), rest.size());
    std::copy_n(rest.begin(), count, to.begin());
    file_.check();
    at_ += count;
    return count;
  }
  void skip(int64_t bytes) override {
    if (bytes > static_cast<int64_t>(file_.bytes().size() - at_)) {
      throw DataError(cat(file_.path(), ": the file became shorter while it was read"));
    }
    at_ += static_cast<size_t>(bytes);
  }
  int64_t taken() const override { return static_cast<int64_t>(at_); }

 private:
  MappedFile file_;
  size_t at_ = 0;
};

#if !defined(SHALE_HAVE_ZLIB) || !defined(SHALE_HAVE_ZSTD)
[[noreturn]] void fail_without(const std::string& path, const char* library, const char* package) {
  throw UnavailableError(cat(path, ": Shale was built without ", library, "; install ", package,
                             " and build it again, or decompress the file"));
}
#endif

}  // namespace

bool is_pipe(const std::string& path) {
  struct stat info {};
  return path == "-" || (::stat(path.c_str(), &info) == 0 && S_ISFIFO(info.st_mode));
}

PipeSource::PipeSource(const std::string& path, OnReading on_reading)
    : name_(path == "-" ? "standard input" : path),
      on_reading_(std::move(on_reading)),
      // O_NONBLOCK, because open() of a pipe would otherwise wait for its writer, and could not be
      // ended by a signal.
      file_(path == "-" ? ::dup(STDIN_FILENO)
                        : ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  if (!file_.is_open()) throw DataError(cat(name_, ": cannot be opened: ", std::strerror(errno)));
  if (::isatty(file_.get()) != 0) {
    throw DataError(cat(name_, ": expected a pipe or a file, found a terminal"));
  }
}

// Waits for data in short steps. Calls on_reading between them; it may throw to end the program.
size_t PipeSource::read_pipe(std::span<char> to) {
  constexpr int kStepMs = 200;
  pollfd waiting{.fd = file_.get(), .events = POLLIN, .revents = 0};
  for (;;) {
    const int ready = ::poll(&waiting, 1, kStepMs);
    const ssize_t got = ready > 0 ? ::read(file_.get(), to.data(), to.size()) : -1;
    const int error = errno;
    if (got > 0) return static_cast<size_t>(got);
    if (on_reading_) on_reading_(name_);
    if (got == 0) return 0;
    if (ready != 0 && error != EINTR && error != EAGAIN) {
      throw DataError(cat(name_, ": cannot be read: ", std::strerror(error)));
    }
  }
}

size_t PipeSource::read(std::span<char> to) {
  size_t count = std::min(to.size(), start_.size() - start_at_);
  std::copy_n(start_.begin() + static_cast<std::ptrdiff_t>(start_at_), count, to.begin());
  start_at_ += count;
  while (count < to.size()) {
    const size_t got = read_pipe(to.subspan(count));
    if (got == 0) break;
    if (keeps_start_) start_.append(to.data() + count, got);
    count += got;
  }
  if (keeps_start_) start_at_ = start_.size();
  taken_ += static_cast<int64_t>(count);
  return count;
}

void PipeSource::rewind() {
  keeps_start_ = false;
  start_at_ = 0;
  taken_ = 0;
}

void ByteSource::skip(int64_t bytes) {
  std::array<char, 1 << 16> buffer;
  while (bytes > 0) {
    const auto wanted = static_cast<size_t>(std::min<int64_t>(bytes, std::ssize(buffer)));
    const size_t got = read(std::span(buffer).first(wanted));
    if (got == 0) throw DataError("the input became shorter while it was read");
    bytes -= static_cast<int64_t>(got);
  }
}

std::unique_ptr<ByteSource> open_byte_source(const std::string& path) {
  MappedFile file(path, {.pattern = AccessPattern::kSequential, .allow_empty = true});
  switch (compression_of(path)) {
    case Compression::kNone: break;
    case Compression::kGzip:
#ifdef SHALE_HAVE_ZLIB
      return corpus_internal::make_gzip_source(std::move(file));
#else
      fail_without(path, "zlib", "zlib1g-dev");
#endif
    case Compression::kZstd:
#ifdef SHALE_HAVE_ZSTD
      return corpus_internal::make_zstd_source(std::move(file));
#else
      fail_without(path, "libzstd", "libzstd-dev");
#endif
  }
  return std::make_unique<PlainSource>(std::move(file));
}

std::string_view without_compression(std::string_view path) {
  switch (compression_of(path)) {
    case Compression::kNone: break;
    case Compression::kGzip: return path.substr(0, path.size() - 3);
    case Compression::kZstd: return path.substr(0, path.size() - 4);
  }
  return path;
}

bool is_compressed(std::string_view path) {
  return compression_of(path) != Compression::kNone;
}

}  // namespace shale
