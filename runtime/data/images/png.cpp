#include <png.h>

#include <csetjmp>
#include <cstring>

#include "shale/base/error.h"
#include "shale/runtime/data/images/decode_internal.h"

namespace shale {
namespace {

// State for reading a file. libpng reports an error through a function that must not return. The
// function jumps to `failed`; between the two there are only stack frames of C code.
struct Reader {
  std::span<const std::byte> rest;
  png_structp png = nullptr;
  png_infop info = nullptr;
  std::jmp_buf failed;
  char message[128] = {};

  ~Reader() { png_destroy_read_struct(&png, &info, nullptr); }
};

void fail(png_structp png, png_const_charp message) {
  auto* reader = static_cast<Reader*>(png_get_error_ptr(png));
  std::strncpy(reader->message, message, sizeof reader->message - 1);
  std::longjmp(reader->failed, 1);
}

void ignore(png_structp, png_const_charp) {}

void read_bytes(png_structp png, png_bytep to, size_t count) {
  auto* reader = static_cast<Reader*>(png_get_io_ptr(png));
  if (reader->rest.size() < count) png_error(png, "the file ends in the middle");
  std::memcpy(to, reader->rest.data(), count);
  reader->rest = reader->rest.subspan(count);
}

// Reads the header. Requests samples as stored in the file: the upper 8 of 16 bits, without gamma
// (gAMA), alpha channel or tRNS transparency. Errors jump to the setjmp() below, so no object with
// a destructor may exist on the way.
bool read_header(Reader& reader) {
  if (setjmp(reader.failed) != 0) return false;
  png_set_read_fn(reader.png, &reader, read_bytes);
  // no limit, because check_size() has one
  png_set_user_limits(reader.png, 0x7fffffff, 0x7fffffff);
  png_read_info(reader.png, reader.info);
  png_set_palette_to_rgb(reader.png);
  png_set_expand_gray_1_2_4_to_8(reader.png);
  png_set_gray_to_rgb(reader.png);
  png_set_strip_16(reader.png);
  png_set_strip_alpha(reader.png);
  return true;
}

bool read_rows(Reader& reader, uint8_t* pixels, size_t row_bytes, int64_t rows) {
  if (setjmp(reader.failed) != 0) return false;
  const int passes = png_set_interlace_handling(reader.png);
  png_read_update_info(reader.png, reader.info);
  if (png_get_rowbytes(reader.png, reader.info) != row_bytes) {
    png_error(reader.png, "rows have an unexpected size");
  }
  for (int pass = 0; pass < passes; ++pass) {
    for (int64_t row = 0; row < rows; ++row) {
      png_read_row(reader.png, pixels + static_cast<size_t>(row) * row_bytes, nullptr);
    }
  }
  return true;
}

// libpng's memory for writing a file, freed when the scope ends.
struct PngImage {
  png_image image{};
  PngImage() { image.version = PNG_IMAGE_VERSION; }
  ~PngImage() { png_image_free(&image); }
  PngImage(const PngImage&) = delete;
  PngImage& operator=(const PngImage&) = delete;
};

}  // namespace

namespace image_internal {

void decode_png(std::span<const std::byte> file, const std::string& source, Image& to) {
  Reader reader{.rest = file};
  reader.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &reader, fail, ignore);
  if (reader.png != nullptr) reader.info = png_create_info_struct(reader.png);
  if (reader.info == nullptr) throw OutOfMemoryError(cat(source, ": no memory to decode it"));
  const auto check = [&](bool fine) {
    if (!fine) throw DataError(cat(source, ": libpng: ", reader.message));
  };
  check(read_header(reader));
  const int64_t rows = png_get_image_height(reader.png, reader.info);
  const int64_t cols = png_get_image_width(reader.png, reader.info);
  check_size(rows, cols, source);
  to.resize(rows, cols, 3);
  check(read_rows(reader, to.pixels.data(), static_cast<size_t>(cols) * 3, rows));
}

std::vector<std::byte> encode_png(const Image& from, const std::string& target) {
  PngImage png;
  png.image.width = static_cast<png_uint_32>(from.cols);
  png.image.height = static_cast<png_uint_32>(from.rows);
  png.image.format = from.channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
  const auto write = [&](void* to, png_alloc_size_t& bytes) {
    if (png_image_write_to_memory(&png.image, to, &bytes, 0, from.pixels.data(), 0, nullptr) == 0) {
      throw InternalError(cat(target, ": libpng: ", png.image.message));
    }
  };
  png_alloc_size_t bytes = 0;
  write(nullptr, bytes);
  std::vector<std::byte> file(bytes);
  write(file.data(), bytes);
  file.resize(bytes);
  return file;
}

}  // namespace image_internal
}  // namespace shale
