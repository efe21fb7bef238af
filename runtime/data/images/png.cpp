#include <png.h>

#include <memory>

#include "shale/base/error.h"
#include "shale/runtime/data/images/decode_internal.h"

namespace shale {
namespace {

// libpng's own memory for a file, let go whatever happens.
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
  PngImage png;
  const auto fail = [&] { throw DataError(cat(source, ": libpng: ", png.image.message)); };
  if (png_image_begin_read_from_memory(&png.image, file.data(), file.size()) == 0) fail();
  check_size(png.image.height, png.image.width, source);
  png.image.format = PNG_FORMAT_RGB;
  to.resize(png.image.height, png.image.width, 3);
  const png_color black{};
  const int read = png_image_finish_read(&png.image, &black, to.pixels.data(), 0, nullptr);
  // A warning is what libpng makes of a file that ends too early.
  if (read == 0 || PNG_IMAGE_FAILED(png.image)) fail();
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
