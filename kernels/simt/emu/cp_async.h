#pragma once

#include "shale/kernels/simt/emu/builtins.h"

namespace shale::kernels::emu::simt {

template <int kBytes>
void cp_async(void* to, const void* from, bool valid = true, Site site = Site::current()) {
  static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16);
  emulator::cp_async(to, from, kBytes, valid ? kBytes : 0, site);
}
template <int kBytes>
void cp_async_part(void* to, const void* from, int bytes, Site site = Site::current()) {
  static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16);
  emulator::cp_async(to, from, kBytes, static_cast<uint32_t>(bytes), site);
}
inline void cp_async_commit(Site site = Site::current()) {
  emulator::cp_async_commit(site);
}
template <int kNewest>
void cp_async_wait(Site site = Site::current()) {
  emulator::cp_async_wait(kNewest, site);
}

}  // namespace shale::kernels::emu::simt
