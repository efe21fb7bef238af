#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace shale {

// Files that must not be lost, and the folders they are in. Every call of the system is checked: a
// failure is a DiskError with the path, the operation, its bytes and the system's reason. A call
// that a signal interrupted is made again; a short read or write is completed.

// Whether a file that somebody else named may be looked up in a folder: letters, digits, '_', '.'
// and
// '-', no '.' first, so that it cannot lead elsewhere; at most 255 of them.
bool is_plain_file_name(std::string_view name);

// Owns a file descriptor.
class FileHandle {
 public:
  FileHandle() = default;
  explicit FileHandle(int fd) : fd_(fd) {}
  ~FileHandle();  // closes, and has nobody to tell if that fails
  FileHandle(FileHandle&& other) noexcept;
  FileHandle& operator=(FileHandle&& other) noexcept;

  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }
  int release();  // now the caller's

 private:
  int fd_ = -1;
};

class Folder;

class File {
 public:
  File() = default;  // none

  // A new, empty file, to be written. That something has this name, even a link, is an error. Mode
  // 0666 less the umask.
  static File create(const Folder& folder, const std::string& name);
  // Nothing if something has this path. Messages call the file `called`.
  static std::optional<File> try_create(const std::string& path, std::string called);
  // For reading. Throws MissingInputError if there is none, DataError if it is a link or no file.
  static File open(const Folder& folder, const std::string& name);

  bool is_open() const { return handle_.is_open(); }
  const std::string& path() const { return path_; }
  int64_t bytes() const;  // its size now

  // Reserves disk space up to this size, so that a full disk shows now and not after hours of
  // writing. Without effect where the file system cannot do it.
  void reserve(int64_t bytes);
  // From now on reads and writes go between memory and the disk, and not through the system's
  // cache: that takes a fraction of the processor's time, and no memory that somebody else could
  // use. Addresses, offsets and sizes must be multiples of kDirectAlignment. Without effect where
  // the file system cannot do it.
  void bypass_cache(bool bypass);
  void write_at(int64_t offset, std::span<const std::byte> bytes);
  // Throws DataError if the file ends before. Where `want` is given, that many are enough.
  void read_at(int64_t offset, std::span<std::byte> bytes, std::optional<size_t> want = {});
  void resize(int64_t bytes);
  // What was written is on the disk when this returns. After an error nobody knows what is: the
  // file must be written again from the start.
  void sync();
  void close();
  void expect_sequential_reads() const;  // only a hint, which makes them faster

 private:
  File(FileHandle handle, std::string path);
  [[noreturn]] void fail(std::string_view operation, int error) const;

  FileHandle handle_;
  std::string path_;
};

// A folder that is held open: names are looked up in it, whatever happens to its path meanwhile.
class Folder {
 public:
  // Throws MissingInputError if there is none, DataError if it is something else. The path may lead
  // through links; names inside may not.
  static Folder open(const std::string& path);
  // The same after making it, and the folders above it, where they do not exist. New names are on
  // the disk when this returns. Throws DiskError where one cannot be made.
  static Folder make(const std::string& path);

  const std::string& path() const { return path_; }
  std::string path_of(const std::string& name) const;  // for messages

  Folder open_folder(const std::string& name) const;
  void make_folder(const std::string& name) const;  // that it exists is an error
  std::vector<std::string> names() const;           // sorted
  bool has(const std::string& name) const;

  // Replaces a file of the new name, or an empty folder if it renames a folder. On the disk only
  // after sync().
  void rename(const std::string& from, const std::string& to) const;
  void remove_file(const std::string& name) const;
  // A file, a link, or a folder with everything in it; does not follow links.
  void remove_all(const std::string& name) const;
  // Names that were made, changed or removed here are on the disk when this returns.
  void sync() const;

 private:
  friend class File;
  Folder(FileHandle handle, std::string path);
  [[noreturn]] void fail(std::string_view operation, int error) const;

  FileHandle handle_;
  std::string path_;
};

}  // namespace shale
