#pragma once

#include <cstddef>
#include <cstdint>

#include "shale/base/view.h"

namespace shale::bench {

// Zeroed memory, in huge pages if available, like Shale's own, so that comparisons do not depend on
// page tables.
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

// Fills a contiguous f32, bf16 or f16 view with numbers uniform in [-scale, scale], on all threads.
// The numbers depend only on view shape and seed.
void fill_uniform(const View& view, double scale, uint64_t seed);
// Fills a contiguous i32 view with integers uniform in [0, bound).
void fill_integers(const View& view, int64_t bound, uint64_t seed);

}  // namespace shale::bench
