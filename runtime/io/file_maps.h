#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "shale/runtime/io/mapped_file.h"

namespace shale {

// Files that are mapped when they are first used. A limited number stays mapped: a process may have
// 65,530 mappings (vm.max_map_count), and other code needs some of them.
class FileMaps {
 public:
  static constexpr size_t kMostMapped = 16384;
  // A file whose contents must not change from now on.
  struct Entry {
    std::string path;
    int64_t bytes = 0;
    int64_t modified_ns = 0;  // time of its last change, in the file system's epoch
  };

  // most: number of files that stay mapped.
  explicit FileMaps(size_t most = kMostMapped) : most_(most) {}

  // Adds a file, and returns its number. Not while other threads call map().
  size_t add(Entry file);
  size_t add(MappedFile file);  // keeps it mapped

  // Returns the mapping of a file, which lasts as long as the result. Unmaps a file that was not
  // used lately if too many are mapped. Thread-safe. Throws as MappedFile does; DataError if the
  // file was changed or replaced since it was added.
  std::shared_ptr<const MappedFile> map(size_t file) const;

  size_t most() const { return most_; }
  std::vector<Entry> entries() const;

 private:
  struct Slot {
    Entry file;
    std::shared_ptr<const MappedFile> map = {};  // null: not mapped
    bool is_used = false;                        // used since the hand last passed this slot
  };
  void keep(Slot& slot, std::shared_ptr<const MappedFile> map) const;

  const size_t most_;
  mutable std::mutex mutex_;  // protects what follows, except the entries
  mutable std::vector<Slot> slots_;
  mutable size_t mapped_ = 0;
  mutable size_t hand_ = 0;  // slot where the next search for a file to unmap begins (CLOCK)
};

}  // namespace shale
