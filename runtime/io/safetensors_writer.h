#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "shale/base/view.h"
#include "shale/runtime/io/atomic_file.h"
#include "shale/runtime/io/safetensors_layout.h"

namespace shale {

// Writes a safetensors file: first all tensors are declared, then their data comes in the order of
// the declaration, in pieces of any size. The file has them in the order of the reference
// implementation (larger element types first, then by name), and appears only with commit().
class SafetensorsWriter {
 public:
  // `metadata` is joined by {"format": "pt"}, without which some readers refuse a file. Throws
  // InternalError for a name that is declared twice, too long or not UTF-8; DiskError if the file
  // cannot be made or the disk has no room.
  SafetensorsWriter(const std::string& path, std::vector<SafetensorsSpec> tensors,
                    std::map<std::string, std::string> metadata = {});

  // The next bytes of the current tensor. Throws InternalError if they are more than it has left,
  // DiskError as AtomicFile.
  void write(std::span<const std::byte> bytes);

  // A whole tensor: the current one, untouched so far. Throws InternalError unless `tensor` is
  // dense, in host memory, and has the dtype and shape that were declared.
  void write(const View& tensor);

  // The tensor that the next write goes to; null when all are complete.
  const SafetensorsSpec* current() const;

  // Syncs the data to the disk, under another name still. Throws InternalError if some is missing.
  void finish();
  // The same, then gives the file its name.
  void commit();

 private:
  void skip_complete();

  std::vector<SafetensorsSpec> tensors_;
  std::vector<int64_t> begins_;  // of each tensor's data in the file
  AtomicFile file_;
  int64_t file_bytes_ = 0;
  size_t current_ = 0;
  int64_t written_ = 0;  // of the current tensor
};

// What is in a folder besides its tensors.
struct SafetensorsFolderOptions {
  std::map<std::string, std::string> metadata = {};
  int64_t max_shard_bytes = 5'000'000'000;  // of tensors in one file
};

// The same for a model's folder: model.safetensors, or, above the limit, the files
// model-00001-of-0000N.safetensors with model.safetensors.index.json. Tensors fill the files in the
// order of their declaration; one that is larger than the limit has a file to itself.
class SafetensorsFolderWriter {
 public:
  // Makes the folder if necessary. Throws as SafetensorsWriter.
  SafetensorsFolderWriter(std::string folder, std::vector<SafetensorsSpec> tensors,
                          const SafetensorsFolderOptions& options = {});

  void write(std::span<const std::byte> bytes);
  void write(const View& tensor);
  const SafetensorsSpec* current() const;

  // Syncs the data to the disk, under other names still. Throws InternalError if some is missing.
  void finish();
  // The same, then gives the files their names, and removes what an earlier model of this naming
  // left: afterwards the folder has the files of this one, and what has other names is as it was.
  // Whenever a crash comes, readers find the old model, the new one, or no file to
  // begin with: never some tensors of each.
  void commit();

 private:
  SafetensorsWriter& current_writer();

  std::string folder_;
  std::string index_;  // the text of the index; empty for a single file
  std::vector<SafetensorsWriter> writers_;
  size_t current_ = 0;
};

}  // namespace shale
