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
// one .distcp file, in which each tensor is whole.
class DcpWriter : public TensorWriter {
 public:
  // `aliases`: names of further entries that share a tensor's data. Creates the folder if
  // necessary. Throws ConfigError if it has a model in safetensors, which readers would take;
  // otherwise like SafetensorsFolderWriter.
  DcpWriter(std::string folder, std::vector<SafetensorsSpec> tensors,
            std::map<std::string, std::string> aliases = {});

  void write(std::span<const std::byte> bytes) override;
  void finish() override;
  void commit() override;

 private:
  // A tensor's place in the file: an archive of torch.save.
  struct Place {
    int64_t begin = 0;
    int64_t bytes = 0;
    std::string front = {};  // bytes before the data
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
  int64_t written_ = 0;  // bytes of the current tensor
  uint32_t crc_ = 0;     // checksum of these bytes
};

}  // namespace shale
