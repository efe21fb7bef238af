#include "shale/kernels/simt/engine/mapping.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "shale/base/error.h"

namespace shale::emulator {
namespace {

[[noreturn]] void refused(size_t bytes) {
  throw OutOfMemoryError(
      cat("emulator: cannot allocate ", format_bytes(double(bytes)), ": ", std::strerror(errno)));
}

}  // namespace

Mapping::Mapping(size_t bytes) : bytes_(bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) refused(bytes);
  data_ = static_cast<std::byte*>(memory);
}

Mapping::~Mapping() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

Mapping::Mapping(Mapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

void Mapping::forbid(size_t offset, size_t bytes) {
  if (mprotect(data_ + offset, bytes, PROT_NONE) != 0) refused(bytes);
}

}  // namespace shale::emulator
