#pragma once

#include <type_traits>

#include "shale/kernels/simt/emu/builtins.h"

namespace shale::kernels::emu::simt {

// There is a variable for each type T. Its address identifies the shared object of that type.
template <typename T>
inline constexpr char kSharedKey = 0;

template <typename T>
T& shared() {
  static_assert(std::is_trivially_destructible_v<T>);
  void* object = emulator::static_shared_memory(&kSharedKey<T>, sizeof(T), alignof(T));
  return *static_cast<T*>(object);
}

template <typename T = unsigned char>
T* dynamic_shared() {
  return reinterpret_cast<T*>(emulator::dynamic_shared_memory());
}

inline uint32_t shared_address(const void* p) {
  return emulator::shared_offset(p);
}

inline void barrier_sync(int id, int threads, Site site = Site::current()) {
  emulator::named_barrier(id, threads, false, site);
}
inline void barrier_arrive(int id, int threads, Site site = Site::current()) {
  emulator::named_barrier(id, threads, true, site);
}

}  // namespace shale::kernels::emu::simt
