#include <zlib.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "shale/base/error.h"
#include "shale/runtime/data/corpus/byte_source.h"

namespace shale::corpus_internal {
namespace {

// Decompresses consecutive members (RFC 1952, section 2.2). Ignores zeros after the last one.
class GzipSource final : public ByteSource {
 public:
  explicit GzipSource(MappedFile file) : file_(std::move(file)) {
    constexpr int kGzipAlone = 16 + MAX_WBITS;
    if (inflateInit2(&stream_, kGzipAlone) != Z_OK) {
      throw OutOfMemoryError(cat(file_.path(), ": no memory to decompress it"));
    }
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(file_.bytes().data()));
    left_ = file_.bytes().size();
  }
  ~GzipSource() override { inflateEnd(&stream_); }
  GzipSource(const GzipSource&) = delete;
  GzipSource& operator=(const GzipSource&) = delete;

  size_t read(std::span<char> to) override {
    constexpr size_t kMost = std::numeric_limits<uInt>::max();
    stream_.next_out = reinterpret_cast<Bytef*>(to.data());
    const auto wanted = static_cast<uInt>(std::min(to.size(), kMost));
    stream_.avail_out = wanted;
    while (stream_.avail_out > 0 && !is_at_end()) {
      const auto given = static_cast<uInt>(std::min(left_, kMost));
      stream_.avail_in = given;
      const int status = inflate(&stream_, Z_NO_FLUSH);
      left_ -= given - stream_.avail_in;
      file_.check();
      if (status == Z_STREAM_END) {
        is_inside_ = false;
        inflateReset(&stream_);
      } else if (status == Z_OK) {
        is_inside_ = true;
      } else {
        fail(status);
      }
    }
    return wanted - stream_.avail_out;
  }
  int64_t taken() const override { return static_cast<int64_t>(file_.bytes().size() - left_); }

 private:
  // Returns true if only padding follows. Called between two members.
  bool is_at_end() {
    if (is_inside_ || taken() == 0) return false;
    const auto rest = file_.bytes().last(left_);
    const bool is_padding =
        std::all_of(rest.begin(), rest.end(), [](std::byte b) { return b == std::byte{0}; });
    if (is_padding) left_ = 0;
    return is_padding;
  }
  [[noreturn]] void fail(int status) const {
    const bool is_short = left_ == 0 && status == Z_BUF_ERROR;
    throw DataError(
        cat(file_.path(), is_short ? ": ends in the middle, expected all of a gzip file"
                                   : cat(": not gzip at byte ", taken(), ": ",
                                         stream_.msg != nullptr ? stream_.msg : zError(status))));
  }

  MappedFile file_;
  z_stream stream_{};
  size_t left_ = 0;         // number of unread bytes of the file
  bool is_inside_ = false;  // true: reading is inside a member
};

}  // namespace

std::unique_ptr<ByteSource> make_gzip_source(MappedFile file) {
  return std::make_unique<GzipSource>(std::move(file));
}

}  // namespace shale::corpus_internal
