#include "shale/test/support/compressed.h"

#include <zlib.h>
#include <zstd.h>

#include "shale/base/error.h"

namespace shale::test {

std::string gzipped(std::string_view text) {
  z_stream stream{};
  constexpr int kGzip = 16 + MAX_WBITS, kMemory = 8;
  if (deflateInit2(&stream, 6, Z_DEFLATED, kGzip, kMemory, Z_DEFAULT_STRATEGY) != Z_OK) {
    throw InternalError("deflateInit2 failed");
  }
  std::string out(deflateBound(&stream, text.size()) + 32, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  const int status = deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  if (status != Z_STREAM_END) throw InternalError("deflate failed");
  return out;
}

std::string zstd_frame(std::string_view text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  const size_t size = ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3);
  if (ZSTD_isError(size) != 0) throw InternalError("ZSTD_compress failed");
  out.resize(size);
  return out;
}

}  // namespace shale::test
