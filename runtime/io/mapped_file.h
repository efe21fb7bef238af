#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "shale/runtime/io/unreadable_pages.h"

namespace shale {

// How a mapping will be read; it decides what the kernel reads ahead.
enum class AccessPattern { kNormal, kSequential, kRandom };

struct MapOptions {
  AccessPattern pattern = AccessPattern::kNormal;
  bool allow_empty = false;  // otherwise a file of 0 bytes is a DataError
};

// A file, mapped read-only. Processes of one node that map the same file share its memory.
//
// Whoever shortens the file while it is mapped, and a disk or server that fails, make its pages
// zeros: what was read counts only after check().
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
  // Throws DataError if something that was read until now was not there to be read.
  void check() const;

  void advise(AccessPattern pattern) const;
  // Lets the system read ahead `part` of bytes(), which begins at a page, without waiting.
  void will_need(std::span<const std::byte> part) const;

 private:
  std::string path_;
  std::span<const std::byte> bytes_;
  std::unique_ptr<UnreadablePages> unreadable_;  // null: nothing is mapped
};

}  // namespace shale
