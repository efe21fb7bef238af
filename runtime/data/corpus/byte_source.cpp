#include "shale/runtime/data/corpus/byte_source.h"

#include <algorithm>
#include <array>
#include <cctype>
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
