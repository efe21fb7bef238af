#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shale/base/view.h"
#include "shale/runtime/io/mapped_file.h"
#include "shale/runtime/io/safetensors_format.h"

namespace shale {

// A memory-mapped safetensors file; only the accessed parts are read from the disk.
class SafetensorsFile {
 public:
  // Throws MissingInputError if the file does not exist, DataError unless it is well-formed
  // (parse_safetensors_header).
  explicit SafetensorsFile(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const MappedFile& file() const { return file_; }
  // moves the file out; this object may not be used afterwards
  MappedFile take_file() { return std::move(file_); }
  const std::vector<SafetensorsEntry>& entries() const { return header_.entries; }
  const std::map<std::string, std::string>& metadata() const { return header_.metadata; }

  const SafetensorsEntry* find(std::string_view name) const;  // null if there is no such tensor

  // Returns the tensor's data in the file, possibly unaligned. Valid as long as this object lives.
  std::span<const std::byte> bytes(const SafetensorsEntry& entry) const;

  // Returns the data as a dense view of read-only memory: writing to it terminates the process.
  // Throws DataError if Shale does not support the element type or the number of dimensions, or if
  // the data is unaligned (only old writers made such files; use bytes() for them).
  View view(const SafetensorsEntry& entry) const;

  // Throws DataError if data that was read so far from bytes() or views could not be read from the
  // file, because it was truncated or its disk failed. Such data reads as zeros.
  void check() const { file_.check(); }

 private:
  MappedFile file_;
  SafetensorsHeader header_;
  std::map<std::string, size_t, std::less<>> index_;  // name of a tensor -> its index in entries()
};

// The tensors of a model, from one file or from a folder. A folder contains model.safetensors, or
// else the files that model.safetensors.index.json lists.
class SafetensorsFolder {
 public:
  struct Tensor {
    const SafetensorsFile* file = nullptr;
    const SafetensorsEntry* entry = nullptr;
    std::span<const std::byte> bytes() const { return file->bytes(*entry); }
    View view() const { return file->view(*entry); }
  };

  // Throws MissingInputError if a file is missing; DataError if one is malformed, or if the index
  // and the files do not list the same tensors.
  explicit SafetensorsFolder(const std::string& path);

  // Tensors by name.
  const std::map<std::string, Tensor, std::less<>>& tensors() const { return tensors_; }
  const Tensor* find(std::string_view name) const;  // null if there is no such tensor

 private:
  void open_index(const std::string& folder, const std::string& index_path);
  void add_file(const std::string& path);

  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, Tensor, std::less<>> tensors_;
};

}  // namespace shale
