#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "shale/runtime/io/mapped_file.h"

namespace shale {

// Files that are mapped when they are first used. The number of mapped files is limited: a process
// may have 65,530 mappings (vm.max_map_count), and other code needs some of them.
class FileMaps {
 public:
  static constexpr size_t kMostMapped = 16384;
  // A file whose contents must not change from now on.
  struct Entry {
    std::string path;
    int64_t bytes = 0;
    // time of the last change, in nanoseconds since the file system's epoch
    int64_t modified_ns = 0;
  };

  // most: maximum number of mapped files.
  explicit FileMaps(size_t most = kMostMapped) : most_(most) {}

  // Adds a file, and returns its number. May not be called while other threads call map().
  size_t add(Entry file);
  size_t add(MappedFile file);  // adds a file that is mapped already

  // Returns the mapping of a file, which stays valid as long as the result lives. If too many files
  // are mapped, unmaps one that was not used lately. Thread-safe. Throws the errors of MappedFile,
  // and DataError if the file was changed or replaced since it was added.
  std::shared_ptr<const MappedFile> map(size_t file) const;

  size_t most() const { return most_; }
  std::vector<Entry> entries() const;

 private:
  struct Slot {
    Entry file;
    std::shared_ptr<const MappedFile> map = {};  // null: not mapped
    bool is_used = false;                        // used since hand_ last passed this slot
  };
  void keep(Slot& slot, std::shared_ptr<const MappedFile> map) const;

  const size_t most_;
  mutable std::mutex mutex_;  // protects the members below, except Slot::file
  mutable std::vector<Slot> slots_;
  mutable size_t mapped_ = 0;
  // slot at which the next search for a file to unmap begins (CLOCK algorithm)
  mutable size_t hand_ = 0;
};

}  // namespace shale
