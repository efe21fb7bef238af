#pragma once

#include <bit>
#include <type_traits>

#include "shale/base/dtype.h"
#include "shale/base/tf32.h"
#include "shale/kernels/simt/emu/builtins.h"
#include "shale/kernels/simt/engine/matrix.h"

namespace shale::kernels::emu::simt {

template <int kCount, bool kTransposed = false>
void ldmatrix(uint32_t (&registers)[kCount], const void* row, Site site = Site::current()) {
  static_assert(kCount == 1 || kCount == 2 || kCount == 4);
  emulator::load_matrix(registers, row, kCount, kTransposed, site);
}
template <int kCount, bool kTransposed = false>
void stmatrix(void* row, const uint32_t (&registers)[kCount], Site site = Site::current()) {
  static_assert(kCount == 1 || kCount == 2 || kCount == 4);
  emulator::store_matrix(row, registers, kCount, kTransposed, site);
}

template <typename T>
void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                  Site site = Site::current()) {
  static_assert(std::is_same_v<T, bf16> || std::is_same_v<T, f16>);
  constexpr auto kType =
      std::is_same_v<T, bf16> ? emulator::MmaType::kBF16 : emulator::MmaType::kF16;
  emulator::mma(kType, d, a, b, site);
}

inline void mma_m16n8k8_tf32(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                             Site site = Site::current()) {
  emulator::mma(emulator::MmaType::kTF32, d, a, b, site);
}

inline uint32_t to_tf32(float x) {
  return std::bit_cast<uint32_t>(round_to_tf32(x));
}

}  // namespace shale::kernels::emu::simt
