#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "shale/runtime/io/unreadable_pages.h"

namespace shale {

// Expected access pattern of a mapping, which controls the kernel's read-ahead.
enum class AccessPattern { kNormal, kSequential, kRandom };

struct MapOptions {
  AccessPattern pattern = AccessPattern::kNormal;
  bool allow_empty = false;  // false: an empty file throws DataError
};

// A file, mapped read-only. Processes of one node that map the same file share its memory.
//
// Pages read as zeros if the file is truncated while mapped, or if its disk or server fails: data
// that was read is valid only after check().
class MappedFile {
 public:
  MappedFile() = default;
  // Throws MissingInputError if the file does not exist. Throws DataError if it is not a regular
  // file, cannot be opened, or is empty although allow_empty is false. Throws OutOfMemoryError if
  // the process cannot map more memory.
  explicit MappedFile(const std::string& path, const MapOptions& options = {});
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  // Page-aligned. The address does not change when the MappedFile is moved.
  std::span<const std::byte> bytes() const { return bytes_; }
  std::string_view text() const {
    return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()};
  }
  const std::string& path() const { return path_; }
  // Throws DataError if data that was read so far could not be read from the file (it read as
  // zeros).
  void check() const;

  void advise(AccessPattern pattern) const;
  // Starts reading `part`, which is inside bytes(), into memory as a whole instead of page by page.
  // Does not wait.
  void will_need(std::span<const std::byte> part) const;

 private:
  std::string path_;
  std::span<const std::byte> bytes_;
  std::unique_ptr<UnreadablePages> unreadable_;  // null: nothing is mapped
};

}  // namespace shale
