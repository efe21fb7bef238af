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

// Blockwise quantization. A thread owns rows. A block has one scale, so the elements of a vector
// share a scale.

HWY_BEFORE_NAMESPACE();
namespace shale::kernels::HWY_NAMESPACE {

inline constexpr int64_t kDecodeGrain = 16384;  // elements per chunk of work
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

// Returns the largest magnitude of a block, or NaN if the block has a non-finite number.
HWY_INLINE float largest_magnitude(const float* block) {
  const F32Tag d;
  auto largest = hn::Zero(d);
  auto finite = hn::Eq(largest, largest);
  for (int64_t i = 0; i < kCodeBlock; i += kF32Lanes) {
    const auto x = hn::Load(d, block + i);
    finite = hn::And(finite, hn::IsFinite(x));
    largest = hn::Max(largest, hn::Abs(x));
  }
  return hn::AllTrue(d, finite) ? max_lanes(d, largest)
                                : std::numeric_limits<float>::quiet_NaN();
}

HWY_INLINE void encode_int8_block(const float* block, F32Vec inverse, uint8_t* codes) {
  const hn::Rebind<int8_t, F32Tag> bytes;
  for (int64_t i = 0; i < kCodeBlock; i += kF32Lanes) {
    const auto level = hn::NearestInt(hn::Mul(hn::Load(F32Tag(), block + i), inverse));
    hn::StoreU(hn::DemoteTo(bytes, level), bytes, reinterpret_cast<int8_t*>(codes) + i);
  }
}

// The NF4 code of a number is the number of boundaries below it. Boundaries are halfway between two
// levels.
HWY_INLINE void encode_nf4_block(const float* block, F32Vec inverse, uint8_t* codes) {
  const CodeIndexTag d;
  HWY_ALIGN int32_t apart[kCodeBlock];
  for (int64_t i = 0; i < kCodeBlock; i += kF32Lanes) {
    const auto x = hn::Mul(hn::Load(F32Tag(), block + i), inverse);
    auto code = hn::Zero(d);
    for (size_t level = 0; level + 1 < kNf4Levels.size(); ++level) {
      const auto between = hn::Set(F32Tag(), (kNf4Levels[level] + kNf4Levels[level + 1]) / 2);
      const auto above = hn::RebindMask(d, hn::Gt(x, between));
      code = hn::Add(code, hn::IfThenElseZero(above, hn::Set(d, 1)));
    }
    hn::Store(code, d, apart + i);
  }
  for (int64_t i = 0; i < kCodeBlock; i += 2) {
    codes[i / 2] = static_cast<uint8_t>(apart[i] << 4 | apart[i + 1]);
  }
}

template <typename T>
void encode_blocks_typed(const Exec& exec, const EncodeBlocksArgs& a) {
  const int64_t columns = a.x.size(1), row_bytes = a.y.size(1);
  const T* x = a.x.as<T>();
  uint8_t* y = a.y.as<uint8_t>();
  const int64_t grain = std::max<int64_t>(1, kDecodeGrain / columns);
  parallel_for(exec, a.x.size(0), grain, [&](int64_t begin, int64_t end) HWY_ATTR {
    const F32Tag d;
    for (int64_t row = begin; row < end; ++row) {
      uint8_t* const codes = y + row * row_bytes;
      auto* const scales = reinterpret_cast<float*>(codes + code_bytes(a.code, columns));
      for (int64_t i = 0; i < columns; i += kCodeBlock) {
        HWY_ALIGN float block[kCodeBlock];
        for (int64_t k = 0; k < kCodeBlock; k += kF32Lanes) {
          hn::Store(load(d, x + row * columns + i + k), d, block + k);
        }
        const float largest = largest_magnitude(block);
        const bool is_finite = largest == largest;
        const BlockScale scale = is_finite ? block_scale(a.code, largest) : BlockScale{};
        scales[i / kCodeBlock] = is_finite ? scale.scale : largest;
        if (!is_finite) {
          std::fill_n(codes + code_bytes(a.code, i), code_bytes(a.code, kCodeBlock), uint8_t{0});
        } else if (a.code == BlockCode::kNf4) {
          encode_nf4_block(block, hn::Set(d, scale.inverse), codes + i / 2);
        } else {
          encode_int8_block(block, hn::Set(d, scale.inverse), codes + i);
        }
      }
    }
  });
}

void encode_blocks_target(const Exec& exec, const EncodeBlocksArgs& a) {
  dispatch_float(a.x.dtype, [&]<typename T>() { encode_blocks_typed<T>(exec, a); });
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

HWY_EXPORT(encode_blocks_target);

template <>
void cpu::run(const Exec& exec, const EncodeBlocksArgs& a) {
  if (a.x.numel() == 0) return;
  HWY_DYNAMIC_DISPATCH(encode_blocks_target)(exec, a);
}

}  // namespace shale::kernels
#endif
