#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shale/base/view.h"
#include "shale/runtime/io/mapped_file.h"
#include "shale/runtime/io/safetensors_format.h"

namespace shale {

// A safetensors file, memory-mapped; only what is looked at is read from the disk.
class SafetensorsFile {
 public:
  // Throws MissingInputError if there is no such file, DataError unless it is well-formed
  // (parse_safetensors_header).
  explicit SafetensorsFile(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const std::vector<SafetensorsEntry>& entries() const { return header_.entries; }
  const std::map<std::string, std::string>& metadata() const { return header_.metadata; }

  const SafetensorsEntry* find(std::string_view name) const;  // null if there is none

  // The data as it lies in the file, at any alignment. Valid as long as this object.
  std::span<const std::byte> bytes(const SafetensorsEntry& entry) const;

  // The data as a dense view of read-only memory: writing to it ends the process. Throws DataError
  // if Shale has no such element type or no such rank, or if the data is not aligned (only old
  // writers made such files; bytes() reads them).
  View view(const SafetensorsEntry& entry) const;

  // Throws DataError if some of what was read of bytes() and views until now was not there to be
  // read: the file became shorter, or its disk failed, and zeros were read in its place.
  void check() const { file_.check(); }

 private:
  MappedFile file_;
  SafetensorsHeader header_;
  std::map<std::string, size_t, std::less<>> index_;  // name: place in entries()
};

// The tensors of a model: of one file, or of a folder with model.safetensors, or, where that does
// not exist, with the files that model.safetensors.index.json names.
class SafetensorsFolder {
 public:
  struct Tensor {
    const SafetensorsFile* file = nullptr;
    const SafetensorsEntry* entry = nullptr;
    std::span<const std::byte> bytes() const { return file->bytes(*entry); }
    View view() const { return file->view(*entry); }
  };

  // Throws MissingInputError if a file is missing, DataError if one is malformed, or if the index
  // and the files do not agree about which tensors there are; for pickles, which run what is in
  // them when they are opened, either says how to convert them.
  explicit SafetensorsFolder(const std::string& path);

  // By name.
  const std::map<std::string, Tensor, std::less<>>& tensors() const { return tensors_; }
  const Tensor* find(std::string_view name) const;  // null if there is none

 private:
  void open_index(const std::string& folder, const std::string& index_path);
  void add_file(const std::string& path);

  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, Tensor, std::less<>> tensors_;
};

}  // namespace shale
