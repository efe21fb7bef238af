#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace shale {

// How a mapping will be read; it decides what the kernel reads ahead.
enum class AccessPattern { kNormal, kSequential, kRandom };

struct MapOptions {
  AccessPattern pattern = AccessPattern::kNormal;
  bool allow_empty = false;  // otherwise a file of 0 bytes is a DataError
};

// A file, mapped read-only. Processes of one node that map the same file share its memory.
//
// Whoever shortens the file while it is mapped kills the reader with SIGBUS, as with any mapping.
class MappedFile {
 public:
  MappedFile() = default;
  // Throws MissingInputError if nothing is there, DataError if it is not a regular file, cannot be
  // opened, or is empty and must not be; OutOfMemoryError if the process may map no more.
  explicit MappedFile(const std::string& path, const MapOptions& options = {});
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  // The bytes stay where they are when the MappedFile is moved. They start at a page.
  std::span<const std::byte> bytes() const { return bytes_; }
  std::string_view text() const {
    return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()};
  }
  const std::string& path() const { return path_; }

  void advise(AccessPattern pattern) const;

 private:
  std::string path_;
  std::span<const std::byte> bytes_;
};

}  // namespace shale
