// jpeglib.h requires these headers before it.
#include <cstddef>
#include <cstdio>
//
#include <jpeglib.h>

#include <csetjmp>
#include <vector>

#include "shale/base/error.h"
#include "shale/runtime/data/images/decode_internal.h"

namespace shale {
namespace {

// State for reading a file. libjpeg reports an error through a function that must not return. The
// function jumps to `failed`; between the two there are only stack frames of C code.
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

// Treats a warning about damaged data as an error; libjpeg would continue.
void warn(j_common_ptr info, int level) {
  if (level < 0) fail(info);
}

// Reads the header. Errors jump to the setjmp() below, so no object with a destructor may exist on
// the way.
bool read_header(Reader& reader, std::span<const std::byte> file) {
  if (setjmp(reader.failed) != 0) return false;
  jpeg_create_decompress(&reader.info);
  jpeg_mem_src(&reader.info, reinterpret_cast<const unsigned char*>(file.data()),
               static_cast<unsigned long>(file.size()));
  jpeg_read_header(&reader.info, TRUE);
  reader.info.out_color_space = reader.info.num_components == 4 ? JCS_CMYK : JCS_RGB;
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

// Returns a * b / 255, rounded.
int scaled(int a, int b) {
  const int product = a * b + 128;
  return ((product >> 8) + product) >> 8;
}

// Converts CMYK to RGB, like PIL. Adobe's programs store 255 minus the ink, so 0 is full ink. This
// is assumed with or without Adobe's marker in the file.
void inks_to_rgb(std::span<const uint8_t> inks, std::span<uint8_t> rgb) {
  for (size_t pixel = 0; pixel < rgb.size() / 3; ++pixel) {
    const uint8_t* const ink = &inks[4 * pixel];
    for (size_t c = 0; c < 3; ++c) {
      rgb[3 * pixel + c] = static_cast<uint8_t>(ink[3] - scaled(255 - ink[c], ink[3]));
    }
  }
}

// Destroys libjpeg's state at the end of the scope.
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
  check_size(reader.info.image_height, reader.info.image_width, source);
  to.resize(reader.info.image_height, reader.info.image_width, 3);
  if (reader.info.num_components != 4) {
    return check(read_rows(reader, to.pixels.data(), static_cast<size_t>(to.cols) * 3));
  }
  std::vector<uint8_t> inks(static_cast<size_t>(to.rows * to.cols) * 4);
  check(read_rows(reader, inks.data(), static_cast<size_t>(to.cols) * 4));
  inks_to_rgb(inks, to.pixels);
}

}  // namespace image_internal
}  // namespace shale
