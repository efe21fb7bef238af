#include "shale/bench/support/buffer.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "shale/base/error.h"

namespace shale::bench {
namespace {

// The mixing function of splitmix64 (Steele, Lea, Flood, "Fast Splittable Pseudorandom Number
// Generators", OOPSLA 2014): random enough for realistic GEMMs, and fast.
uint64_t mixed(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

template <typename T, typename Value>
void fill(const View& view, const Value& value) {
  T* const data = view.as<T>();
  const int64_t count = view.numel();
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < count; ++i) data[i] = T(value(uint64_t(i)));
}

}  // namespace

Buffer::Buffer(size_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    throw OutOfMemoryError(cat("memory: the system refused ", format_bytes(double(bytes)), ": ",
                               std::strerror(errno)));
  }
  madvise(memory, bytes, MADV_HUGEPAGE);  // if the system refuses, the memory is only slower
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

void fill_uniform(const View& view, double scale, uint64_t seed) {
  const auto value = [&](uint64_t i) {
    const double unit = double(mixed(seed * 0x2545f4914f6cdd1du + i) >> 11) * 0x1p-53;
    return float(scale * (2 * unit - 1));
  };
  switch (view.dtype) {
    case DType::kF32: return fill<float>(view, value);
    case DType::kBF16: return fill<bf16>(view, value);
    case DType::kF16: return fill<f16>(view, value);
    default: throw DTypeError(cat("fill_uniform: view is ", view, ", expected fp32, bf16 or fp16"));
  }
}

void fill_integers(const View& view, int64_t bound, uint64_t seed) {
  fill<int32_t>(view, [&](uint64_t i) {
    return int32_t(mixed(seed * 0x2545f4914f6cdd1du + i) % uint64_t(bound));
  });
}

}  // namespace shale::bench
