#pragma once

#include "shale/kernels/simt/emu/builtins.h"
#include "shale/kernels/simt/engine/atomics.h"

namespace shale::kernels::emu::simt {

// The compiler does not deduce T from `value`, so that a literal fits any type.
template <typename T>
T atomic_add(T* p, std::type_identity_t<T> value, Site site = Site::current()) {
  return emulator::atomic_add(p, value, site);
}
template <typename T>
T atomic_max(T* p, std::type_identity_t<T> value, Site site = Site::current()) {
  return emulator::atomic_max(p, value, site);
}
template <typename T>
T atomic_cas(T* p, std::type_identity_t<T> expected, std::type_identity_t<T> value,
             Site site = Site::current()) {
  return emulator::atomic_cas(p, expected, value, site);
}
template <typename T>
T atomic_exchange(T* p, std::type_identity_t<T> value, Site site = Site::current()) {
  return emulator::atomic_exchange(p, value, site);
}
inline uint32_t atomic_increment(uint32_t* p, uint32_t last, Site site = Site::current()) {
  return emulator::atomic_increment(p, last, site);
}

}  // namespace shale::kernels::emu::simt
