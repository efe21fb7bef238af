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
#include "shale/runtime/io/tensor_writer.h"

namespace shale {

// Writes a safetensors file. All tensors are declared first. Then their data is written in the
// order of declaration, in any number of write() calls. The file stores the tensors in the order of
// the reference implementation: larger element types first, then by name. It appears only with
// commit().
class SafetensorsWriter {
 public:
  // Adds {"format": "pt"} to `metadata`, because some readers reject a file without it. Throws
  // InternalError for a name that is repeated, too long or not UTF-8; DiskError if the file cannot
  // be created or the disk is full.
  SafetensorsWriter(const std::string& path, std::vector<SafetensorsSpec> tensors,
                    std::map<std::string, std::string> metadata = {});

  // Writes the next bytes of the current tensor. Throws InternalError for more bytes than remain,
  // DiskError like AtomicFile.
  void write(std::span<const std::byte> bytes);

  // Writes the whole current tensor, which must not be started yet. Throws InternalError unless
  // `tensor` is dense, in host memory, and has the declared dtype and shape.
  void write(const View& tensor);

  // Returns the tensor that the next write goes to; null if all are complete.
  const SafetensorsSpec* current() const;

  // Syncs the data to the disk, still under a temporary name. Throws InternalError if data is
  // missing.
  void finish();
  // Calls finish(), then renames the file to its final name.
  void commit();

 private:
  void skip_complete();

  std::vector<SafetensorsSpec> tensors_;
  std::vector<int64_t> begins_;  // offset of each tensor's data in the file
  AtomicFile file_;
  int64_t file_bytes_ = 0;
  size_t current_ = 0;
  int64_t written_ = 0;  // bytes of the current tensor written so far
};

// Options of SafetensorsFolderWriter.
struct SafetensorsFolderOptions {
  std::map<std::string, std::string> metadata = {};
  int64_t max_shard_bytes = 5'000'000'000;  // maximum bytes of tensor data in one file
};

// Writes the safetensors files of a model's folder. Up to the limit max_shard_bytes this is
// model.safetensors; above it, model-00001-of-0000N.safetensors and model.safetensors.index.json.
// Tensors fill the files in the order of their declaration; a tensor larger than the limit gets a
// separate file.
class SafetensorsFolderWriter : public TensorWriter {
 public:
  // Creates the folder if necessary. Throws like SafetensorsWriter.
  SafetensorsFolderWriter(std::string folder, std::vector<SafetensorsSpec> tensors,
                          const SafetensorsFolderOptions& options = {});

  void write(std::span<const std::byte> bytes) override;
  void write(const View& tensor);
  const SafetensorsSpec* current() const;

  // Syncs the data to the disk, still under temporary names. Throws InternalError if data is
  // missing.
  void finish() override;
  // Calls finish(), renames the files, and removes files of an earlier model with names of the same
  // pattern. Other files of the folder are unchanged. After a crash at any time readers find the
  // old model, the new one, or none, but never a mixture of both.
  void commit() override;

 private:
  SafetensorsWriter& current_writer();

  std::string folder_;
  std::string index_;  // text of the index; empty if there is a single file
  std::vector<SafetensorsWriter> writers_;
  size_t current_ = 0;
};

}  // namespace shale
