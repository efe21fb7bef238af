#pragma once

#include <cstddef>

namespace shale::emulator {

// Zeroed memory in pages of its own, which are allocated when touched. Page-aligned.
class Mapping {
 public:
  Mapping() = default;
  explicit Mapping(size_t bytes);  // throws OutOfMemoryError
  ~Mapping();
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;

  std::byte* data() const { return data_; }
  size_t size() const { return bytes_; }
  // Makes any access to these bytes end the program. Whole pages; throws OutOfMemoryError.
  void forbid(size_t offset, size_t bytes);

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

inline constexpr size_t kPageBytes = 4096;

}  // namespace shale::emulator
