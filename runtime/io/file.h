#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace shale {

// Files whose contents must not be lost, and folders. Every system call is checked: a failure
// throws DiskError with path, operation, bytes and the system's reason. Interrupted calls are
// repeated; short reads and writes are completed.

// Returns true if a file name from an untrusted source is safe to look up in a folder: letters,
// digits, '_', '.' and '-', no leading '.', at most 255 characters.
bool is_plain_file_name(std::string_view name);

// Owns a file descriptor.
class FileHandle {
 public:
  FileHandle() = default;
  explicit FileHandle(int fd) : fd_(fd) {}
  ~FileHandle();  // closes the file; ignores a failure
  FileHandle(FileHandle&& other) noexcept;
  FileHandle& operator=(FileHandle&& other) noexcept;

  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }
  int release();  // transfers ownership to the caller

 private:
  int fd_ = -1;
};

class Folder;

class File {
 public:
  File() = default;  // an object without a file

  // Creates a new, empty file for writing, with mode 0666 minus the umask. Throws if a file or link
  // of this name exists.
  static File create(const Folder& folder, const std::string& name);
  // Like create(), but returns nullopt if the path exists. called: name of the file in messages.
  static std::optional<File> try_create(const std::string& path, std::string called);
  // Opens a file for reading. Throws MissingInputError if it does not exist, DataError if it is a
  // link or not a regular file.
  static File open(const Folder& folder, const std::string& name);

  bool is_open() const { return handle_.is_open(); }
  const std::string& path() const { return path_; }
  int64_t bytes() const;  // current size of the file

  // Reserves disk space up to this size, so that a full disk is reported now and not after hours of
  // writing. No effect if the file system does not support it.
  void reserve(int64_t bytes);
  // Switches direct I/O on or off. Direct I/O needs much less CPU time and no page cache, but
  // addresses, offsets and sizes must be multiples of kDirectAlignment. No effect if the file
  // system does not support it.
  void bypass_cache(bool bypass);
  void write_at(int64_t offset, std::span<const std::byte> bytes);
  // Reads until `bytes` is full. Throws DataError if the file ends earlier; if `want` is given,
  // only if it ends before `want` bytes.
  void read_at(int64_t offset, std::span<std::byte> bytes, std::optional<size_t> want = {});
  void resize(int64_t bytes);
  // Flushes writes to the disk. After an error the contents are unknown: write the file again from
  // the start.
  void sync();
  void close();
  void expect_sequential_reads() const;  // only a hint, for speed

 private:
  File(FileHandle handle, std::string path);
  [[noreturn]] void fail(std::string_view operation, int error) const;

  FileHandle handle_;
  bool bypasses_cache_ = false;
  std::string path_;
};

// A folder that is held open: names are looked up in it even if its path changes.
class Folder {
 public:
  // Throws MissingInputError if the folder does not exist, DataError if the path is not a folder.
  // The path may contain symbolic links, but names looked up in the folder may not be links.
  static Folder open(const std::string& path);
  // Opens the folder after creating it and its parents where they do not exist. New names are on
  // the disk when this returns. Throws DiskError if one cannot be created.
  static Folder make(const std::string& path);

  const std::string& path() const { return path_; }
  std::string path_of(const std::string& name) const;  // returns the path of a file in this folder

  Folder open_folder(const std::string& name) const;
  void make_folder(const std::string& name) const;  // throws if the name exists
  std::vector<std::string> names() const;           // names of files and folders, sorted
  bool has(const std::string& name) const;

  // Renames a file or folder. Replaces an existing file, or an existing empty folder, of the new
  // name. The new name is on the disk only after sync().
  void rename(const std::string& from, const std::string& to) const;
  void remove_file(const std::string& name) const;
  // Removes a file, a link, or a folder with its contents; does not follow links.
  void remove_all(const std::string& name) const;
  // Flushes created, changed and removed names of this folder to the disk.
  void sync() const;

 private:
  friend class File;
  Folder(FileHandle handle, std::string path);
  [[noreturn]] void fail(std::string_view operation, int error) const;

  FileHandle handle_;
  std::string path_;
};

}  // namespace shale
