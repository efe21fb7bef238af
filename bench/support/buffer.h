#pragma once

#include <cstddef>

#include "shale/runtime/kernel_check/fill.h"

namespace shale::bench {

using namespace kernel_check;

// Zeroed memory, in huge pages if available, like Shale's own memory. Comparisons therefore do not
// depend on page tables.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(size_t bytes);  // throws OutOfMemoryError
  ~Buffer();
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace shale::bench
