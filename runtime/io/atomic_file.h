#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "shale/runtime/io/file.h"

namespace shale {

// A file that appears under its name complete or not at all. It is written under a temporary name
// in the same folder, and commit() renames it. Its mode is 0666 minus the umask.
class AtomicFile {
 public:
  // Creates the temporary file. All functions throw DiskError with path and the system's reason.
  explicit AtomicFile(std::string path);
  // Removes the temporary file unless commit() was called.
  ~AtomicFile();
  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&& other) noexcept;

  const std::string& path() const { return path_; }

  // Reserves disk space up to this size, so that a full disk is reported now and not after hours of
  // writing. No effect if the file system does not support it.
  void reserve(int64_t bytes);

  void write_at(int64_t offset, std::span<const std::byte> bytes);

  // Truncates or extends the file to `bytes` and syncs it to the disk, still under its temporary
  // name. No writes may follow; a second call does nothing.
  void finish(int64_t bytes);
  // Calls finish(), then renames the file (replacing an existing one) and syncs the folder.
  void commit(int64_t bytes);

 private:
  void discard() noexcept;

  std::string path_;
  std::string temporary_;  // name of the temporary file; empty once committed
  File file_;
};

// Writes a whole file, complete or not at all, like AtomicFile.
void write_file_atomically(const std::string& path, std::string_view text);

}  // namespace shale
