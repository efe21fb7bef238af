#pragma once

#include <cstddef>
#include <span>

namespace shale {

// Writes tensors that were declared before. The data comes in the order of declaration, in any
// number of write() calls.
class TensorWriter {
 public:
  virtual ~TensorWriter() = default;
  // Writes the next bytes of the current tensor. Throws InternalError for more bytes than remain,
  // DiskError.
  virtual void write(std::span<const std::byte> bytes) = 0;
  // Syncs the data to the disk, still under temporary names. Throws InternalError if data is
  // missing.
  virtual void finish() = 0;
  // Calls finish(), then gives the files their names.
  virtual void commit() = 0;
};

}  // namespace shale
