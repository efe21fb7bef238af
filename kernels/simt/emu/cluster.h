#pragma once

#include "shale/kernels/simt/emu/mbarrier.h"
#include "shale/kernels/simt/emu/tensor_map.h"
#include "shale/kernels/simt/engine/bulk_copies.h"
#include "shale/kernels/simt/engine/cluster.h"

namespace shale::kernels::emu::simt {

inline int cluster_rank() {
  return emulator::cluster_rank();
}
inline void cluster_sync(Site site = Site::current()) {
  emulator::cluster_sync(site);
}
inline void mbarrier_arrive_at(MBarrier& barrier, int rank, Site site = Site::current()) {
  emulator::mbarrier_arrive_at(&barrier, rank, site);
}
inline void tma_load_multicast(void* to, const TensorMap& map, MBarrier& full, unsigned blocks,
                               int x, int y, Site site = Site::current()) {
  emulator::tma_load_multicast(to, map, &full, blocks, {x, y}, 2, site);
}
inline void send_word(uint32_t& to, uint32_t word, MBarrier& full, int rank,
                      Site site = Site::current()) {
  emulator::send_word(&to, word, &full, rank, site);
}

}  // namespace shale::kernels::emu::simt
