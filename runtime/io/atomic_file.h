#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "shale/runtime/io/file.h"

namespace shale {

// A file that appears under its name whole or not at all: it is written under a temporary name in
// the same folder, and renamed by commit(). Its mode is 0666 less the umask.
class AtomicFile {
 public:
  // Throws DiskError, as all other functions here, with the path and the system's reason.
  explicit AtomicFile(std::string path);
  // Removes the temporary file unless commit() was called.
  ~AtomicFile();
  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&& other) noexcept;

  const std::string& path() const { return path_; }

  // Reserves disk space up to this size, so that a full disk shows now and not after hours of
  // writing. Without effect where the file system cannot do it.
  void reserve(int64_t bytes);

  void write_at(int64_t offset, std::span<const std::byte> bytes);

  // Cuts or extends the file to `bytes`, and syncs it to the disk, still under its temporary name.
  // Nothing may be written after it; a second call does nothing.
  void finish(int64_t bytes);
  // The same, then gives the file its name (replacing what had it), and syncs the folder.
  void commit(int64_t bytes);

 private:
  void discard() noexcept;

  std::string path_;
  std::string temporary_;  // empty once committed
  File file_;
};

// Writes a whole file as AtomicFile does.
void write_file_atomically(const std::string& path, std::string_view text);

}  // namespace shale
