#include <zstd.h>

#include <memory>
#include <utility>

#include "shale/base/error.h"
#include "shale/runtime/data/corpus/byte_source.h"

namespace shale::corpus_internal {
namespace {

// Decompresses consecutive frames (RFC 8878, section 3). A frame may request a window of at most
// 128 MiB, zstd's default limit for untrusted files.
class ZstdSource final : public ByteSource {
 public:
  explicit ZstdSource(MappedFile file)
      : file_(std::move(file)), stream_(ZSTD_createDStream(), ZSTD_freeDStream) {
    if (stream_ == nullptr) {
      throw OutOfMemoryError(cat(file_.path(), ": no memory to decompress it"));
    }
    input_ = {.src = file_.bytes().data(), .size = file_.bytes().size(), .pos = 0};
  }

  size_t read(std::span<char> to) override {
    ZSTD_outBuffer output{.dst = to.data(), .size = to.size(), .pos = 0};
    while (output.pos < output.size && (input_.pos < input_.size || wanted_ != 0)) {
      const size_t had_in = input_.pos, had_out = output.pos;
      wanted_ = ZSTD_decompressStream(stream_.get(), &output, &input_);
      file_.check();
      if (ZSTD_isError(wanted_) != 0) {
        throw DataError(
            cat(file_.path(), ": not zstd near byte ", taken(), ": ", ZSTD_getErrorName(wanted_)));
      }
      if (input_.pos == had_in && output.pos == had_out && wanted_ != 0) {
        throw DataError(cat(file_.path(), ": ends in the middle, expected all of a zstd file"));
      }
    }
    return output.pos;
  }
  int64_t taken() const override { return static_cast<int64_t>(input_.pos); }

 private:
  MappedFile file_;
  std::unique_ptr<ZSTD_DStream, size_t (*)(ZSTD_DStream*)> stream_;
  ZSTD_inBuffer input_{};
  size_t wanted_ = 1;  // zstd's estimate of the bytes left in the frame; 0: the frame has ended
};

}  // namespace

std::unique_ptr<ByteSource> make_zstd_source(MappedFile file) {
  return std::make_unique<ZstdSource>(std::move(file));
}

}  // namespace shale::corpus_internal
