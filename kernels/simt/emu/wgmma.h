#pragma once

#include <type_traits>

#include "shale/base/dtype.h"
#include "shale/kernels/fp8_number.h"
#include "shale/kernels/simt/emu/builtins.h"
#include "shale/kernels/simt/emu/matrix.h"
#include "shale/kernels/simt/engine/register_pool.h"
#include "shale/kernels/simt/engine/warpgroup.h"
#include "shale/kernels/simt/wgmma_tile.h"

namespace shale::kernels::emu::simt {

template <typename T>
inline constexpr auto kMmaTypeOf = std::is_same_v<T, bf16>   ? emulator::MmaType::kBF16
                                   : std::is_same_v<T, f16>  ? emulator::MmaType::kF16
                                   : std::is_same_v<T, e4m3> ? emulator::MmaType::kE4M3
                                                             : emulator::MmaType::kE5M2;

template <typename T, int kColumns, bool kAMnMajor, bool kBMnMajor>
void wgmma(float (&d)[kColumns / 2], WgmmaTile<kAMnMajor> a, WgmmaTile<kBMnMajor> b,
           bool accumulate, Site site = Site::current()) {
  static_assert(std::is_same_v<T, bf16> || std::is_same_v<T, f16>);
  static_assert(kColumns % 8 == 0 && kColumns >= 8 && kColumns <= 256);
  emulator::wgmma({.a_type = kMmaTypeOf<T>,
                   .b_type = kMmaTypeOf<T>,
                   .columns = kColumns,
                   .a_mn_major = kAMnMajor,
                   .b_mn_major = kBMnMajor,
                   .accumulate = accumulate,
                   .a = a.descriptor,
                   .b = b.descriptor},
                  d, nullptr, site);
}
template <typename T, int kColumns, bool kBMnMajor>
void wgmma(float (&d)[kColumns / 2], const uint32_t (&a)[4], WgmmaTile<kBMnMajor> b,
           bool accumulate, Site site = Site::current()) {
  static_assert(std::is_same_v<T, bf16> || std::is_same_v<T, f16>);
  static_assert(kColumns % 8 == 0 && kColumns >= 8 && kColumns <= 256);
  emulator::wgmma({.a_type = kMmaTypeOf<T>,
                   .b_type = kMmaTypeOf<T>,
                   .columns = kColumns,
                   .a_in_registers = true,
                   .b_mn_major = kBMnMajor,
                   .accumulate = accumulate,
                   .b = b.descriptor},
                  d, a, site);
}

template <typename TA, typename TB, int kColumns>
void wgmma(float (&d)[kColumns / 2], WgmmaTile<false> a, WgmmaTile<false> b, bool accumulate,
           Site site = Site::current()) {
  static_assert(sizeof(TA) == 1 && sizeof(TB) == 1);
  static_assert(kColumns % 8 == 0 && kColumns >= 8 && kColumns <= 256);
  emulator::wgmma({.a_type = kMmaTypeOf<TA>,
                   .b_type = kMmaTypeOf<TB>,
                   .columns = kColumns,
                   .accumulate = accumulate,
                   .a = a.descriptor,
                   .b = b.descriptor},
                  d, nullptr, site);
}

// Does nothing here: discard() only affects the register use of CUDA's compiler.
template <int kCount>
void discard(float (&)[kCount]) {}
template <typename... Accumulators>
void wgmma_fence(Accumulators&...) {
  emulator::wgmma_fence();
}
inline void wgmma_commit(Site site = Site::current()) {
  emulator::wgmma_commit(site);
}
template <int kNewest, typename... Accumulators>
void wgmma_wait(Accumulators&...) {
  emulator::wgmma_wait(kNewest);
}

inline void stmatrix_x4(void* row, const uint32_t (&registers)[4], Site site = Site::current()) {
  stmatrix<4>(row, registers, site);
}

template <int kThreads>
void settle(uint32_t (&words)[kThreads], uint32_t bits) {
  words[threadIdx.x] = bits;
}

template <int kRegisters>
void shrink_registers(Site site = Site::current()) {
  static_assert(kRegisters >= 24 && kRegisters <= 240 && kRegisters % 8 == 0);
  emulator::shrink_registers(kRegisters, site);
}
template <int kRegisters>
void grow_registers(Site site = Site::current()) {
  static_assert(kRegisters >= 24 && kRegisters <= 240 && kRegisters % 8 == 0);
  emulator::grow_registers(kRegisters, site);
}

}  // namespace shale::kernels::emu::simt
