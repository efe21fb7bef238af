#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "shale/kernels/cpu/block_codes.cpp"
#include <hwy/foreach_target.h>
//
#include <algorithm>

#include "shale/kernels/block_codes.h"
#include "shale/kernels/check.h"
#include "shale/kernels/cpu/parallel.h"
#include "shale/kernels/cpu/run.h"
#include "shale/kernels/cpu/simd-inl.h"

// A thread owns rows. A block has one scale, so that the vectors of a block differ in codes alone.

HWY_BEFORE_NAMESPACE();
namespace shale::kernels::HWY_NAMESPACE {

inline constexpr int64_t kDecodeGrain = 16384;  // elements
static_assert(kCodeBlock % kF32Lanes == 0);

using CodeIndexTag = hn::RebindToSigned<F32Tag>;

template <typename T>
HWY_INLINE void decode_int8_block(const uint8_t* codes, F32Vec scale, T* y) {
  const hn::Rebind<int8_t, F32Tag> bytes;
  for (int64_t i = 0; i < kCodeBlock; i += kF32Lanes) {
    const auto code = hn::LoadU(bytes, reinterpret_cast<const int8_t*>(codes) + i);
    const auto level = hn::ConvertTo(F32Tag(), hn::PromoteTo(CodeIndexTag(), code));
    store(hn::Mul(level, scale), F32Tag(), y + i);
  }
}

template <typename T>
HWY_INLINE void decode_nf4_block(const uint8_t* codes, F32Vec scale, T* y) {
  HWY_ALIGN uint8_t apart[kCodeBlock];
  for (int64_t i = 0; i < kCodeBlock; i += 2) {
    apart[i] = codes[i / 2] >> 4;
    apart[i + 1] = codes[i / 2] & 15;
  }
  const hn::Rebind<uint8_t, F32Tag> bytes;
  for (int64_t i = 0; i < kCodeBlock; i += kF32Lanes) {
    const auto index = hn::PromoteTo(CodeIndexTag(), hn::Load(bytes, apart + i));
    const auto level = hn::GatherIndex(F32Tag(), kNf4Levels.data(), index);
    store(hn::Mul(level, scale), F32Tag(), y + i);
  }
}

template <typename T>
void decode_blocks_typed(const Exec& exec, const DecodeBlocksArgs& a) {
  const int64_t columns = a.y.size(1), row_bytes = a.x.size(1);
  const uint8_t* x = a.x.as<uint8_t>();
  T* y = a.y.as<T>();
  const int64_t grain = std::max<int64_t>(1, kDecodeGrain / columns);
  parallel_for(exec, a.y.size(0), grain, [&](int64_t begin, int64_t end) HWY_ATTR {
    for (int64_t row = begin; row < end; ++row) {
      const uint8_t* const codes = x + row * row_bytes;
      const auto* const scales =
          reinterpret_cast<const float*>(codes + code_bytes(a.code, columns));
      for (int64_t i = 0; i < columns; i += kCodeBlock) {
        const auto scale = hn::Set(F32Tag(), scales[i / kCodeBlock]);
        T* const to = y + row * columns + i;
        if (a.code == BlockCode::kNf4) {
          decode_nf4_block(codes + i / 2, scale, to);
        } else {
          decode_int8_block(codes + i, scale, to);
        }
      }
    }
  });
}

void decode_blocks_target(const Exec& exec, const DecodeBlocksArgs& a) {
  dispatch_float(a.y.dtype, [&]<typename T>() { decode_blocks_typed<T>(exec, a); });
}

}  // namespace shale::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shale::kernels {
HWY_EXPORT(decode_blocks_target);

template <>
void cpu::run(const Exec& exec, const DecodeBlocksArgs& a) {
  if (a.y.numel() == 0) return;
  HWY_DYNAMIC_DISPATCH(decode_blocks_target)(exec, a);
}

}  // namespace shale::kernels
#endif
