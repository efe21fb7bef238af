#pragma once

#include <type_traits>

#include "shale/kernels/simt/emu/mbarrier.h"
#include "shale/kernels/simt/emu/tensor_map.h"
#include "shale/kernels/simt/engine/bulk_copies.h"

namespace shale::kernels::emu::simt {

// There is an overload for each number of coordinates, because the source location can only follow
// a fixed number of arguments.
inline void tma_load(void* to, const TensorMap& map, MBarrier& full, int x, int y,
                     Site site = Site::current()) {
  emulator::tma_load(to, map, &full, {x, y}, 2, site);
}
inline void tma_load(void* to, const TensorMap& map, MBarrier& full, int x, int y, int z,
                     Site site = Site::current()) {
  emulator::tma_load(to, map, &full, {x, y, z}, 3, site);
}
inline void tma_load(void* to, const TensorMap& map, MBarrier& full, int x, int y, int z, int w,
                     Site site = Site::current()) {
  emulator::tma_load(to, map, &full, {x, y, z, w}, 4, site);
}

inline void tma_store(const TensorMap& map, const void* from, int x, int y,
                      Site site = Site::current()) {
  emulator::tma_store(map, from, {x, y}, 2, site);
}
inline void tma_store(const TensorMap& map, const void* from, int x, int y, int z,
                      Site site = Site::current()) {
  emulator::tma_store(map, from, {x, y, z}, 3, site);
}
inline void tma_store(const TensorMap& map, const void* from, int x, int y, int z, int w,
                      Site site = Site::current()) {
  emulator::tma_store(map, from, {x, y, z, w}, 4, site);
}

inline void bulk_load(void* to, const void* from, int bytes, MBarrier& full,
                      Site site = Site::current()) {
  emulator::bulk_load(to, from, bytes, &full, site);
}
inline void bulk_store(void* to, const void* from, int bytes, Site site = Site::current()) {
  emulator::bulk_store(to, from, bytes, site);
}
inline void bulk_add(float* to, const float* from, int bytes, Site site = Site::current()) {
  emulator::bulk_add(to, from, bytes, site);
}

inline void bulk_commit(Site site = Site::current()) {
  emulator::bulk_commit(site);
}
template <int kNewest>
void bulk_wait_read(Site site = Site::current()) {
  emulator::bulk_wait(kNewest, /*written=*/false, site);
}
template <int kNewest>
void bulk_wait(Site site = Site::current()) {
  emulator::bulk_wait(kNewest, /*written=*/true, site);
}

inline void prefetch_tensor_map(const TensorMap& map, Site site = Site::current()) {
  emulator::prefetch_tensor_map(map, site);
}

}  // namespace shale::kernels::emu::simt
