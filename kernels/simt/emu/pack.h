#pragma once

#include "shale/kernels/simt/emu/builtins.h"

namespace shale::kernels::emu::simt {

template <typename T>
inline constexpr int kPackSize = 16 / sizeof(T);

template <typename T, int kCount = kPackSize<T>>
struct alignas(kCount * sizeof(T)) Pack {
  T at[kCount];
};

inline bool is_packed(const void* p) {
  return reinterpret_cast<uintptr_t>(p) % 16 == 0;
}

template <int kCount = 0, typename T>
auto load_pack(const T* p, Site site = Site::current()) {
  using Packed = Pack<T, kCount == 0 ? kPackSize<T> : kCount>;
  emulator::check_pack("load_pack", p, sizeof(Packed), site);
  return *reinterpret_cast<const Packed*>(p);
}
template <typename T, int kCount>
void store_pack(T* p, const Pack<T, kCount>& pack, Site site = Site::current()) {
  emulator::check_pack("store_pack", p, sizeof(pack), site);
  emulator::check_space("store_pack", p, emulator::Space::kGlobal, site);
  *reinterpret_cast<Pack<T, kCount>*>(p) = pack;
}
template <typename T, int kCount>
void store_shared_pack(T* p, const Pack<T, kCount>& pack, Site site = Site::current()) {
  emulator::check_pack("store_shared_pack", p, sizeof(pack), site);
  emulator::check_space("store_shared_pack", p, emulator::Space::kShared, site);
  *reinterpret_cast<Pack<T, kCount>*>(p) = pack;
}

inline void prefetch_l2(const void*) {}

}  // namespace shale::kernels::emu::simt
