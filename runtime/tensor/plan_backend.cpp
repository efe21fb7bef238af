#include "shale/runtime/tensor/plan_backend.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <iterator>

#include "shale/base/error.h"

namespace shale {
namespace {

// Fills memory with zeros. Returns whole pages to the system, which provides zeroed pages at the
// next access.
void clear(std::byte* begin, size_t bytes) {
  constexpr size_t kPage = 4096;
  const size_t before = (kPage - reinterpret_cast<uintptr_t>(begin) % kPage) % kPage;
  const size_t head = std::min(before, bytes), pages = (bytes - head) / kPage * kPage;
  std::memset(begin, 0, head);
  if (pages > 0) madvise(begin + head, pages, MADV_DONTNEED);
  std::memset(begin + head + pages, 0, bytes - head - pages);
}

}  // namespace

void* PlanBackend::Addresses::allocate(size_t bytes) {
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, kFlags, -1, 0);
  if (memory == MAP_FAILED) {
    throw OutOfMemoryError(cat("plan: cannot reserve ", format_bytes(double(bytes)),
                               " of address space: ", std::strerror(errno),
                               "; expected no ulimit -v, and vm.overcommit_memory 0 or 1"));
  }
  // Sets the page size. If only a few scattered values are written, large pages would use much real
  // memory for them.
  madvise(memory, bytes, advice_);
  const std::lock_guard lock(mutex_);
  segments_.emplace(static_cast<const std::byte*>(memory), bytes);
  return memory;
}

void PlanBackend::Addresses::free(void* memory, size_t bytes) noexcept {
  const std::lock_guard lock(mutex_);
  segments_.erase(static_cast<const std::byte*>(memory));
  munmap(memory, bytes);
}

bool PlanBackend::Addresses::owns(const void* address) const {
  const std::lock_guard lock(mutex_);
  const auto* at = static_cast<const std::byte*>(address);
  const auto after = segments_.upper_bound(at);
  if (after == segments_.begin()) return false;
  const auto& [begin, bytes] = *std::prev(after);
  return static_cast<size_t>(at - begin) < bytes;
}

void* PlanBackend::create_stream() {
  if (device_.type == DeviceType::kCpu) return nullptr;
  streams_.push_back(0);
  return &streams_.back();
}

void* PlanBackend::record_event(void* stream) {
  return clock_ == nullptr ? nullptr : new double(clock_->time_of(stream));
}

void PlanBackend::wait_event(void* stream, void* event) {
  if (event != nullptr) clock_->hold_back(stream, *static_cast<const double*>(event));
}

void PlanBackend::synchronize_event(void* event) {
  if (event != nullptr) clock_->host_waits(*static_cast<const double*>(event));
}

// Returns the direction of a copy. Memory that the device does not own is host memory. On the CPU
// every copy is kInside.
PlanClock::Way PlanBackend::way_of(const void* to, const void* from) const {
  using enum PlanClock::Way;
  if (device_.type == DeviceType::kCpu) return kInside;
  if (!memory_.owns(from)) return kFromHost;
  return memory_.owns(to) ? kInside : kToHost;
}

void PlanBackend::copy(void* to, const void* from, size_t bytes, void* stream) {
  if (bytes == 0) return;
  if (bytes <= copied_) {
    std::memmove(to, from, bytes);
  } else if (owns(to)) {
    clear(static_cast<std::byte*>(to), bytes);
  } else {
    std::memset(to, 0, bytes);
  }
  if (clock_ != nullptr) clock_->copies(way_of(to, from), bytes, stream);
}

}  // namespace shale
