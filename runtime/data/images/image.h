#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace shale {

// A picture in host memory: dense [rows, cols, channels] bytes, red, green and blue, or gray alone.
struct Image {
  int64_t rows = 0, cols = 0;
  int64_t channels = 3;  // 1 or 3
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

// The picture in a PNG or JPEG file, which its first bytes tell apart, as red, green and blue of 8
// bits; `source` is what messages call it. Transparency is dropped. Throws DataError for
// what is neither, is damaged, or has more than kMaxImagePixels; UnavailableError in builds without
// libpng or libjpeg.
void decode_image(std::span<const std::byte> file, const std::string& source, Image& to);
// A file of some kilobytes can ask for so many, which take 192 MiB in each worker. Photographs have
// a tenth of them.
inline constexpr int64_t kMaxImagePixels = int64_t{1} << 26;

// The picture as a PNG file; `target` is what messages call it. Throws UnavailableError.
std::vector<std::byte> encode_png(const Image& image, const std::string& target);

// Writes a picture as a PNG file, whole or not at all. Throws DiskError, UnavailableError.
void write_png(const std::string& path, const Image& image);

// Whether a name ends as those of files that decode_image() reads.
bool is_image_name(std::string_view name);

}  // namespace shale
