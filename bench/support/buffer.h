#pragma once

#include <cstddef>
#include <cstdint>

#include "shale/base/view.h"

namespace shale::bench {

// Zeroed memory in huge pages where the system grants them, as Shale's own: a comparison must not
// be one of page tables.
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

// Writes numbers spread evenly over [-scale, scale], the same for the same view and seed, on all
// threads. f32, bf16 or f16, contiguous.
void fill_uniform(const View& view, double scale, uint64_t seed);
// The same over the integers [0, bound). i32, contiguous.
void fill_integers(const View& view, int64_t bound, uint64_t seed);

}  // namespace shale::bench
