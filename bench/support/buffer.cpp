#include "shale/bench/support/buffer.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "shale/base/error.h"

namespace shale::bench {

Buffer::Buffer(size_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    throw OutOfMemoryError(
        cat("memory: cannot allocate ", format_bytes(double(bytes)), ": ", std::strerror(errno)));
  }
  madvise(memory, bytes, MADV_HUGEPAGE);  // only a hint: without huge pages the memory is slower
  data_ = static_cast<std::byte*>(memory);
}

Buffer::~Buffer() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

Buffer::Buffer(Buffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

}  // namespace shale::bench
