#include "shale/kernels/simt/engine/atomics.h"

#include <algorithm>
#include <atomic>

#include "shale/base/text.h"
#include "shale/kernels/simt/engine/block.h"

namespace shale::emulator {
namespace {

template <typename T>
void begin(const char* name, const T* p, Site site) {
  Fiber& self = enter(name, site);
  Block& block = *self.block;
  if (reinterpret_cast<uintptr_t>(p) % sizeof(T) != 0) {
    block.fail(Fault::kMisaligned, cat(name, ": the address is not a multiple of ", sizeof(T)));
  }
  if (block.shared().contains(p)) {
    const uint32_t offset = block.shared().check(p, sizeof(T), sizeof(T), name);
    block.tracker().access(self.actor, offset, sizeof(T), Access::kAtomic);
  } else {
    check_waited(self, "changes atomically a place in");
    block.global().access(p, sizeof(T), Access::kAtomic);
  }
  block.yield(self);
  block.global().before_atomic(p);
}

void end(const void* p) {
  t_fiber->block->global().after_atomic(p);
}

// Uses atomic instructions, because blocks run on several OS threads.
template <typename T, typename Change>
T update(const char* name, T* p, Site site, Change&& change) {
  begin(name, p, site);
  const std::atomic_ref<T> memory(*p);
  T old = memory.load(std::memory_order_relaxed);
  while (!memory.compare_exchange_weak(old, change(old), std::memory_order_relaxed)) {
  }
  end(p);
  return old;
}

template <typename T>
T add(T* p, T value, Site site) {
  return update("atomic_add", p, site, [value](T old) { return static_cast<T>(old + value); });
}

template <typename T>
T cas(T* p, T expected, T value, Site site) {
  begin("atomic_cas", p, site);
  std::atomic_ref<T>(*p).compare_exchange_strong(expected, value, std::memory_order_relaxed);
  end(p);
  return expected;
}

}  // namespace

float atomic_add(float* p, float value, Site site) {
  return add(p, value, site);
}
uint32_t atomic_add(uint32_t* p, uint32_t value, Site site) {
  return add(p, value, site);
}
uint64_t atomic_add(uint64_t* p, uint64_t value, Site site) {
  return add(p, value, site);
}

int32_t atomic_add(int32_t* p, int32_t value, Site site) {
  return update("atomic_add", p, site, [value](int32_t old) {  // the sum wraps, as on the hardware
    return static_cast<int32_t>(static_cast<uint32_t>(old) + static_cast<uint32_t>(value));
  });
}

int32_t atomic_max(int32_t* p, int32_t value, Site site) {
  return update("atomic_max", p, site, [value](int32_t old) { return std::max(old, value); });
}
uint32_t atomic_max(uint32_t* p, uint32_t value, Site site) {
  return update("atomic_max", p, site, [value](uint32_t old) { return std::max(old, value); });
}

uint32_t atomic_increment(uint32_t* p, uint32_t last, Site site) {
  return update("atomic_increment", p, site,
                [last](uint32_t old) { return old >= last ? 0 : old + 1; });
}

uint32_t atomic_cas(uint32_t* p, uint32_t expected, uint32_t value, Site site) {
  return cas(p, expected, value, site);
}
uint64_t atomic_cas(uint64_t* p, uint64_t expected, uint64_t value, Site site) {
  return cas(p, expected, value, site);
}

uint32_t atomic_exchange(uint32_t* p, uint32_t value, Site site) {
  begin("atomic_exchange", p, site);
  const uint32_t old = std::atomic_ref<uint32_t>(*p).exchange(value, std::memory_order_relaxed);
  end(p);
  return old;
}

void thread_fence() {
  t_fiber->block->global().fence();
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

}  // namespace shale::emulator
