#pragma once

#include "shale/kernels/simt/emu/builtins.h"
#include "shale/kernels/simt/engine/mbarriers.h"

namespace shale::kernels::emu::simt {

struct alignas(8) MBarrier {
  uint64_t state;
};

inline void mbarrier_init(MBarrier& barrier, int count, Site site = Site::current()) {
  emulator::mbarrier_init(&barrier, count, site);
}
inline void fence_mbarrier_init(Site site = Site::current()) {
  emulator::fence_mbarrier_init(site);
}

inline void mbarrier_arrive(MBarrier& barrier, Site site = Site::current()) {
  emulator::mbarrier_arrive(&barrier, site);
}
inline void mbarrier_arrive_expect(MBarrier& barrier, int bytes, Site site = Site::current()) {
  emulator::mbarrier_arrive_expect(&barrier, bytes, site);
}
inline void mbarrier_wait(MBarrier& barrier, int parity, Site site = Site::current()) {
  emulator::mbarrier_wait(&barrier, parity, site);
}

inline void fence_proxy_async(Site site = Site::current()) {
  emulator::fence_proxy_async(site);
}

}  // namespace shale::kernels::emu::simt
