#include "shale/base/text_file.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

#include "shale/base/error.h"

namespace shale {

std::string read_text_file(const std::string& path, int64_t max_bytes) {
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path.c_str(), "rb"), std::fclose);
  if (!file) {
    if (errno == ENOENT || errno == ENOTDIR) throw MissingInputError(cat(path, ": no such file"));
    throw DataError(cat(path, ": cannot be opened: ", std::strerror(errno)));
  }
  // Read in chunks, because pipes and files in /proc do not report their size.
  std::string text;
  std::vector<char> piece(size_t{1} << 16);
  while (const size_t count = std::fread(piece.data(), 1, piece.size(), file.get())) {
    text.append(piece.data(), count);
    if (static_cast<int64_t>(text.size()) > max_bytes) {
      throw DataError(cat(path, ": larger than ", max_bytes, " bytes"));
    }
  }
  if (std::ferror(file.get()) != 0) {
    throw DataError(cat(path, ": cannot be read: ", std::strerror(errno)));
  }
  return text;
}

}  // namespace shale
