// The functions that -fsanitize=thread calls before loads and stores, renamed: tracker_names.h
// renames them in the compiler's output, so that they do not collide with the real ThreadSanitizer
// of a program that links Shale. This file is compiled without the flag.
#include <cstdint>
#include <cstring>

#include "shale/kernels/simt/engine/block.h"

namespace shale::emulator {
namespace {

constinit bool instrumented = false;

inline void access(const void* p, size_t bytes, Access kind, const void* instruction) {
  if (t_tracked_arena == nullptr || t_fiber == nullptr || bytes == 0) return;
  const auto offset = static_cast<size_t>(static_cast<const std::byte*>(p) - t_tracked_arena);
  const Fiber& self = *t_fiber;
  Block& block = *self.block;
  if (offset < SharedMemory::kBytes) {
    return block.tracker().plain_access(p, static_cast<uint32_t>(bytes), kind, instruction);
  }
  if (self.before_wait) [[unlikely]] {
    block.tracker().early_access(p, static_cast<uint32_t>(bytes), kind, instruction);
  }
  if (self.multiplies) [[unlikely]] {
    block.warpgroups().check_registers(self, p, bytes, kind, instruction);
  }
  block.global().plain_access(p, bytes, kind, instruction);
}

}  // namespace

bool has_instrumented_kernels() {
  return instrumented;
}

}  // namespace shale::emulator

using shale::emulator::Access;
using shale::emulator::access;

// This is a macro, because the compiler calls a family of C functions with the size in the name.
// g++ and clang call slightly different ones.
#define SHALE_ACCESS(name, bytes, kind)                  \
  void shale_track_##name(void* p) {                     \
    access(p, bytes, kind, __builtin_return_address(0)); \
  }
#define SHALE_ACCESSES(bytes)                                      \
  SHALE_ACCESS(read##bytes, bytes, Access::kRead)                  \
  SHALE_ACCESS(write##bytes, bytes, Access::kWrite)                \
  SHALE_ACCESS(unaligned_read##bytes, bytes, Access::kRead)        \
  SHALE_ACCESS(unaligned_write##bytes, bytes, Access::kWrite)      \
  SHALE_ACCESS(volatile_read##bytes, bytes, Access::kRead)         \
  SHALE_ACCESS(volatile_write##bytes, bytes, Access::kWrite)       \
  void shale_track_read_write##bytes(void* p) {                    \
    access(p, bytes, Access::kRead, __builtin_return_address(0));  \
    access(p, bytes, Access::kWrite, __builtin_return_address(0)); \
  }
// Instrumented code has atomic operations only in host code, such as reference counts: kernels use
// atomics.h.
#define SHALE_ATOMICS(bits)                                                                       \
  using Atomic##bits = uint##bits##_t;                                                            \
  Atomic##bits shale_track_atomic##bits##_load(const volatile Atomic##bits* p, int) {             \
    return __atomic_load_n(p, __ATOMIC_SEQ_CST);                                                  \
  }                                                                                               \
  void shale_track_atomic##bits##_store(volatile Atomic##bits* p, Atomic##bits value, int) {      \
    __atomic_store_n(p, value, __ATOMIC_SEQ_CST);                                                 \
  }                                                                                               \
  Atomic##bits shale_track_atomic##bits##_exchange(volatile Atomic##bits* p, Atomic##bits value,  \
                                                   int) {                                         \
    return __atomic_exchange_n(p, value, __ATOMIC_SEQ_CST);                                       \
  }                                                                                               \
  Atomic##bits shale_track_atomic##bits##_fetch_add(volatile Atomic##bits* p, Atomic##bits value, \
                                                    int) {                                        \
    return __atomic_fetch_add(p, value, __ATOMIC_SEQ_CST);                                        \
  }                                                                                               \
  Atomic##bits shale_track_atomic##bits##_fetch_sub(volatile Atomic##bits* p, Atomic##bits value, \
                                                    int) {                                        \
    return __atomic_fetch_sub(p, value, __ATOMIC_SEQ_CST);                                        \
  }                                                                                               \
  int shale_track_atomic##bits##_compare_exchange_strong(                                         \
      volatile Atomic##bits* p, Atomic##bits* expected, Atomic##bits value, int, int) {           \
    return __atomic_compare_exchange_n(p, expected, value, false, __ATOMIC_SEQ_CST,               \
                                       __ATOMIC_SEQ_CST);                                         \
  }                                                                                               \
  Atomic##bits shale_track_atomic##bits##_compare_exchange_val(                                   \
      volatile Atomic##bits* p, Atomic##bits expected, Atomic##bits value, int, int) {            \
    __atomic_compare_exchange_n(p, &expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);  \
    return expected;                                                                              \
  }

extern "C" {

SHALE_ACCESSES(1)
SHALE_ACCESSES(2)
SHALE_ACCESSES(4)
SHALE_ACCESSES(8)
SHALE_ACCESSES(16)
SHALE_ATOMICS(8)
SHALE_ATOMICS(16)
SHALE_ATOMICS(32)
SHALE_ATOMICS(64)

void shale_track_read_range(void* p, size_t bytes) {
  access(p, bytes, Access::kRead, __builtin_return_address(0));
}
void shale_track_write_range(void* p, size_t bytes) {
  access(p, bytes, Access::kWrite, __builtin_return_address(0));
}
void* shale_track_memcpy(void* to, const void* from, size_t bytes) {
  access(from, bytes, Access::kRead, __builtin_return_address(0));
  access(to, bytes, Access::kWrite, __builtin_return_address(0));
  return std::memcpy(to, from, bytes);
}
void* shale_track_memmove(void* to, const void* from, size_t bytes) {
  access(from, bytes, Access::kRead, __builtin_return_address(0));
  access(to, bytes, Access::kWrite, __builtin_return_address(0));
  return std::memmove(to, from, bytes);
}
void* shale_track_memset(void* to, int value, size_t bytes) {
  access(to, bytes, Access::kWrite, __builtin_return_address(0));
  return std::memset(to, value, bytes);
}

// Called at startup by every instrumented file.
void shale_track_init() {
  shale::emulator::instrumented = true;
}

// The compiler also calls these functions; the tracker does not need them.
void shale_track_func_entry(void*) {}
void shale_track_func_exit() {}
void shale_track_vptr_update(void**, void*) {}
void shale_track_vptr_read(void**) {}
void shale_track_atomic_thread_fence(int) {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
void shale_track_atomic_signal_fence(int) {}

}  // extern "C"
