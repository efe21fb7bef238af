#pragma once

#include "shale/runtime/data/images/image.h"

namespace shale::image_internal {

void decode_png(std::span<const std::byte> file, const std::string& source, Image& to);
void decode_jpeg(std::span<const std::byte> file, const std::string& source, Image& to);
std::vector<std::byte> encode_png(const Image& image, const std::string& target);

// Throws DataError if a size is not positive or too large.
void check_size(int64_t rows, int64_t cols, const std::string& source);

}  // namespace shale::image_internal
