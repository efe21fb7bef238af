#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "shale/runtime/io/atomic_file.h"
#include "shale/runtime/io/safetensors_layout.h"
#include "shale/runtime/io/tensor_writer.h"
#include "shale/runtime/io/zip_writer.h"

namespace shale {

// Writes a checkpoint for torch.distributed.checkpoint.load(), PyTorch 2.1 and later: .metadata and
// one .distcp file with whole tensors.
class DcpWriter : public TensorWriter {
 public:
  // aliases: additional entries; maps the name of each to the name of the tensor that has its data.
  // Creates the folder if necessary. Throws ConfigError if the folder contains a model in
  // safetensors, which readers would prefer. Throws the other errors of SafetensorsFolderWriter.
  DcpWriter(std::string folder, std::vector<SafetensorsSpec> tensors,
            std::map<std::string, std::string> aliases = {});

  void write(std::span<const std::byte> bytes) override;
  void finish() override;
  void commit() override;

 private:
  // Position of a tensor in the file. Each tensor is a zip archive of torch.save.
  struct Place {
    int64_t begin = 0;
    int64_t bytes = 0;
    std::string front = {};  // bytes of the archive before the tensor's data
    ZipLayout zip = {};
  };
  void start_tensors();
  void end_tensor();
  std::string metadata() const;

  std::string folder_;
  std::vector<SafetensorsSpec> tensors_;
  std::map<std::string, std::string> aliases_;
  std::vector<Place> places_;
  AtomicFile file_;
  int64_t file_bytes_ = 0;
  size_t current_ = 0;
  int64_t written_ = 0;  // bytes of the current tensor written so far
  uint32_t crc_ = 0;     // checksum of the bytes written so far
};

}  // namespace shale
