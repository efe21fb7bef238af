#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace shale {

// An image in host memory: dense [rows, cols, channels] bytes, as RGB or gray.
struct Image {
  int64_t rows = 0, cols = 0;
  int64_t channels = 3;  // number of channels: 1 (gray) or 3 (RGB)
  std::vector<uint8_t> pixels = {};

  void resize(int64_t new_rows, int64_t new_cols, int64_t new_channels) {
    rows = new_rows, cols = new_cols, channels = new_channels;
    pixels.resize(static_cast<size_t>(rows * cols * channels));
  }
  const uint8_t* at(int64_t row, int64_t col) const {
    return pixels.data() + (row * cols + col) * channels;
  }
  uint8_t* at(int64_t row, int64_t col) { return pixels.data() + (row * cols + col) * channels; }
};

// Decodes a PNG or JPEG file to 8-bit RGB. The first bytes show the format. `source` names the file
// in messages. Transparency is dropped. Throws DataError for other or damaged files and for more
// than kMaxImagePixels; UnavailableError in builds without libpng or libjpeg.
void decode_image(std::span<const std::byte> file, const std::string& source, Image& to);
// Maximum number of pixels. It limits memory to 192 MiB per worker, because a file of some
// kilobytes can declare a huge image. Photographs have a tenth of this.
inline constexpr int64_t kMaxImagePixels = int64_t{1} << 26;

// Encodes an image as a PNG file. `target` names the file in messages. Throws UnavailableError.
std::vector<std::byte> encode_png(const Image& image, const std::string& target);

// Writes an image as a PNG file, complete or not at all. Throws DiskError, UnavailableError.
void write_png(const std::string& path, const Image& image);

// Returns true if the name has the suffix of a format that decode_image() can read.
bool is_image_name(std::string_view name);

}  // namespace shale
