#include <algorithm>
#include <cctype>

#include "shale/base/error.h"
#include "shale/runtime/data/images/decode_internal.h"
#include "shale/runtime/io/atomic_file.h"

namespace shale {
namespace {

bool begins_with(std::span<const std::byte> file, std::initializer_list<unsigned> magic) {
  return file.size() >= magic.size() &&
         std::equal(magic.begin(), magic.end(), file.begin(),
                    [](unsigned want, std::byte is) { return std::byte(want) == is; });
}

#if !defined(SHALE_HAVE_PNG) || !defined(SHALE_HAVE_JPEG)
[[noreturn]] void fail_without(const std::string& source, const char* library,
                               const char* package) {
  throw UnavailableError(cat(source, ": Shale was built without ", library, "; install ", package,
                             " and build it again"));
}
#endif

}  // namespace

namespace image_internal {

void check_size(int64_t rows, int64_t cols, const std::string& source) {
  if (rows > 0 && cols > 0 && cols <= kMaxImagePixels / rows) return;
  throw DataError(cat(source, ": ", cols, " x ", rows, " pixels, expected 1 to ", kMaxImagePixels,
                      " pixels in all"));
}

#ifndef SHALE_HAVE_PNG
void decode_png(std::span<const std::byte>, const std::string& source, Image&) {
  fail_without(source, "libpng", "libpng-dev");
}
std::vector<std::byte> encode_png(const Image&, const std::string& target) {
  fail_without(target, "libpng", "libpng-dev");
}
#endif
#ifndef SHALE_HAVE_JPEG
void decode_jpeg(std::span<const std::byte>, const std::string& source, Image&) {
  fail_without(source, "libjpeg", "libjpeg-dev");
}
#endif

}  // namespace image_internal

void decode_image(std::span<const std::byte> file, const std::string& source, Image& to) {
  if (begins_with(file, {0x89, 'P', 'N', 'G'})) {
    return image_internal::decode_png(file, source, to);
  }
  if (begins_with(file, {0xff, 0xd8, 0xff})) {
    return image_internal::decode_jpeg(file, source, to);
  }
  throw DataError(cat(source, ": neither a PNG nor a JPEG file"));
}

std::vector<std::byte> encode_png(const Image& image, const std::string& target) {
  return image_internal::encode_png(image, target);
}

void write_png(const std::string& path, const Image& image) {
  const std::vector<std::byte> file = encode_png(image, path);
  write_file_atomically(path,
                        std::string_view(reinterpret_cast<const char*>(file.data()), file.size()));
}

bool is_image_name(std::string_view name) {
  const size_t dot = name.rfind('.');
  if (dot == name.npos) return false;
  std::string ending(name.substr(dot + 1));
  for (char& c : ending) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return ending == "png" || ending == "jpg" || ending == "jpeg";
}

}  // namespace shale
