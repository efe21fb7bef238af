#pragma once

#include "kernels/simt/emu/builtins.h"

namespace shale::kernels::emu::simt {

template <typename T>
inline constexpr int kPackSize = 16 / sizeof(T);

template <typename T>
struct alignas(16) Pack {
  T at[kPackSize<T>];
};

inline bool is_packed(const void* p) {
  return reinterpret_cast<uintptr_t>(p) % 16 == 0;
}

template <typename T>
Pack<T> load_pack(const T* p, Site site = Site::current()) {
  emulator::check_pack("load_pack", p, site);
  return *reinterpret_cast<const Pack<T>*>(p);
}
template <typename T>
void store_pack(T* p, const Pack<T>& pack, Site site = Site::current()) {
  emulator::check_pack("store_pack", p, site);
  *reinterpret_cast<Pack<T>*>(p) = pack;
}

}  // namespace shale::kernels::emu::simt
