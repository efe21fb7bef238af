#pragma once

#include <cstddef>

namespace shale::emulator {

// Zeroed, page-aligned memory. The system allocates its pages when they are first accessed.
class Mapping {
 public:
  Mapping() = default;
  explicit Mapping(size_t bytes);  // throws OutOfMemoryError
  ~Mapping();
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;

  std::byte* data() const { return data_; }
  size_t size() const { return bytes_; }
  // Makes any access to bytes [offset, offset + bytes) end the program. Both numbers are multiples
  // of the page size. Throws OutOfMemoryError.
  void forbid(size_t offset, size_t bytes);

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

inline constexpr size_t kPageBytes = 4096;

}  // namespace shale::emulator
