#pragma once

#include <cstring>

#include "shale/kernels/simt/emu/builtins.h"
#include "shale/kernels/simt/engine/warp.h"

namespace shale::kernels::emu::simt {

template <typename T>
T shfl(T value, int lane, uint32_t mask = kAllLanes, Site site = Site::current()) {
  static_assert(sizeof(T) <= sizeof(uint64_t));
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = emulator::shuffle(mask, bits, lane, site);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}
template <typename T>
T shfl_xor(T value, int bits, uint32_t mask = kAllLanes, Site site = Site::current()) {
  return shfl(value, emulator::lane_index() ^ bits, mask, site);
}
// A source lane outside the warp means the calling lane itself.
template <typename T>
T shfl_down(T value, int n, uint32_t mask = kAllLanes, Site site = Site::current()) {
  return shfl(value, emulator::lane_index() + n, mask, site);
}
template <typename T>
T shfl_up(T value, int n, uint32_t mask = kAllLanes, Site site = Site::current()) {
  return shfl(value, emulator::lane_index() - n, mask, site);
}

inline uint32_t ballot(bool predicate, uint32_t mask = kAllLanes, Site site = Site::current()) {
  return emulator::ballot(mask, predicate, site);
}
inline bool any(bool predicate, uint32_t mask = kAllLanes, Site site = Site::current()) {
  return emulator::ballot(mask, predicate, site) != 0;
}
inline bool all(bool predicate, uint32_t mask = kAllLanes, Site site = Site::current()) {
  return emulator::ballot(mask, predicate, site) == mask;
}

inline int uniform(int x, Site site = Site::current()) {
  emulator::check_uniform(x, shfl(x, 0, kAllLanes, site), site);
  return x;
}

}  // namespace shale::kernels::emu::simt
