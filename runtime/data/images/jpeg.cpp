// jpeglib.h wants these before it.
#include <cstddef>
#include <cstdio>
//
#include <jpeglib.h>

#include <csetjmp>

#include "shale/base/error.h"
#include "shale/runtime/data/images/decode_internal.h"

namespace shale {
namespace {

// libjpeg's errors end in a function that may not return. It jumps back, over frames of C alone.
struct Reader {
  jpeg_decompress_struct info{};
  jpeg_error_mgr errors{};
  std::jmp_buf failed;
  char message[JMSG_LENGTH_MAX] = {};
};

void fail(j_common_ptr info) {
  auto* reader = static_cast<Reader*>(info->client_data);
  info->err->format_message(info, reader->message);
  std::longjmp(reader->failed, 1);
}

// A warning is what libjpeg makes of data that is damaged, and goes on.
void warn(j_common_ptr info, int level) {
  if (level < 0) fail(info);
}

// Reads as far as the sizes. Nothing with a destructor may be made between the jump and here.
bool read_header(Reader& reader, std::span<const std::byte> file) {
  if (setjmp(reader.failed) != 0) return false;
  jpeg_create_decompress(&reader.info);
  jpeg_mem_src(&reader.info, reinterpret_cast<const unsigned char*>(file.data()),
               static_cast<unsigned long>(file.size()));
  jpeg_read_header(&reader.info, TRUE);
  reader.info.out_color_space = JCS_RGB;
  return true;
}

bool read_rows(Reader& reader, uint8_t* pixels, size_t row_bytes) {
  if (setjmp(reader.failed) != 0) return false;
  jpeg_start_decompress(&reader.info);
  while (reader.info.output_scanline < reader.info.output_height) {
    JSAMPROW row = pixels + reader.info.output_scanline * row_bytes;
    jpeg_read_scanlines(&reader.info, &row, 1);
  }
  jpeg_finish_decompress(&reader.info);
  return true;
}

// Ends a reader, whatever has become of it.
struct Guard {
  Reader& reader;
  ~Guard() { jpeg_destroy_decompress(&reader.info); }
};

}  // namespace

namespace image_internal {

void decode_jpeg(std::span<const std::byte> file, const std::string& source, Image& to) {
  Reader reader;
  reader.info.err = jpeg_std_error(&reader.errors);
  reader.errors.error_exit = fail;
  reader.errors.emit_message = warn;
  reader.info.client_data = &reader;
  const Guard guard{reader};
  const auto check = [&](bool fine) {
    if (!fine) throw DataError(cat(source, ": libjpeg: ", reader.message));
  };
  check(read_header(reader, file));
  if (reader.info.num_components == 4) {
    throw DataError(cat(source, ": four inks, want red, green and blue, or gray"));
  }
  check_size(reader.info.image_height, reader.info.image_width, source);
  to.resize(reader.info.image_height, reader.info.image_width, 3);
  check(read_rows(reader, to.pixels.data(), static_cast<size_t>(to.cols) * 3));
}

}  // namespace image_internal
}  // namespace shale
