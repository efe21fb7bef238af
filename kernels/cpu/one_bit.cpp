#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "shale/kernels/cpu/one_bit.cpp"
#include <hwy/foreach_target.h>
//
#include <bit>
#include <cstring>

#include "shale/kernels/check.h"
#include "shale/kernels/cpu/loop-inl.h"
#include "shale/kernels/cpu/parallel.h"
#include "shale/kernels/cpu/run.h"
#include "shale/kernels/one_bit.h"

// 1-bit compression processes one block at a time: its elements stay in the L1 cache until their
// scale is known, so that memory is read and written once.

HWY_BEFORE_NAMESPACE();
namespace shale::kernels::HWY_NAMESPACE {

constexpr int64_t kSignGrain = 16 * kSignBlock;  // elements per chunk of work
constexpr int64_t kWordBits = 32;
static_assert(kF32Lanes <= kWordBits);

using F32Mask = hn::Mask<F32Tag>;

// Returns the signs of the vector that begins at element i of a packed block, as a mask.
HWY_INLINE F32Mask signs_at(const int32_t* block, int64_t i) {
  const auto word = std::bit_cast<uint32_t>(block[1 + i / kWordBits]) >> (i % kWordBits);
  uint8_t bits[8] = {};
  std::memcpy(bits, &word, sizeof(word));
  return hn::LoadMaskBits(F32Tag(), bits);
}

// Returns scale * sign for the vector that begins at element i of a packed block.
HWY_INLINE F32Vec unpacked_at(const int32_t* block, int64_t i) {
  const auto scale = hn::Set(F32Tag(), std::bit_cast<float>(block[0]));
  return hn::IfThenElse(signs_at(block, i), scale, hn::Neg(scale));
}

// Pointers for the next block to pack. If count is less than kSignBlock, it is the last block.
struct SignPacking {
  const float* mask;
  float* owed;
  int32_t* packed;
  int64_t count;
};

// Returns the sum of magnitudes of a block, in the order that one_bit.h specifies.
HWY_INLINE float sum_magnitudes(const float* u) {
  constexpr int64_t kVectors = kWordBits / kF32Lanes;
  const F32Tag d;
  F32Vec sums[kVectors];
  for (F32Vec& sum : sums) sum = hn::Zero(d);
  for (int64_t row = 0; row < kSignBlock; row += kWordBits) {
    for (int64_t k = 0; k < kVectors; ++k) {
      sums[k] = hn::Add(sums[k], hn::Abs(hn::Load(d, u + row + k * kF32Lanes)));
    }
  }
  HWY_ALIGN float lanes[kWordBits];
  for (int64_t k = 0; k < kVectors; ++k) hn::Store(sums[k], d, lanes + k * kF32Lanes);
  for (int64_t half = kWordBits / 2; half > 0; half /= 2) {
    for (int64_t l = 0; l < half; ++l) lanes[l] += lanes[l + half];
  }
  return lanes[0];
}

HWY_INLINE void write_signs(const float* u, int32_t* words) {
  const F32Tag d;
  for (int64_t row = 0; row < kSignBlock; row += kWordBits) {
    uint32_t word = 0;
    for (int64_t k = 0; k < kWordBits; k += kF32Lanes) {
      const auto above = hn::Ge(hn::Load(d, u + row + k), hn::Zero(d));
      uint8_t bits[8] = {};
      hn::StoreMaskBits(d, above, bits);
      uint32_t some = 0;
      std::memcpy(&some, bits, sizeof(some));
      word |= some << k;
    }
    words[row / kWordBits] = std::bit_cast<int32_t>(word);
  }
}

// Packs a block. element(i, part) returns the vector that begins at element i of the block, before
// the mask is applied.
template <class Element>
HWY_INLINE void pack_sign_block(const SignPacking& to, const Element& element) {
  const F32Tag d;
  HWY_ALIGN float u[kSignBlock];
  if (to.count < kSignBlock) std::memset(u, 0, sizeof(u));
  size_t live = 0;
  for_vectors(to.count, [&](int64_t i, auto part) HWY_ATTR {
    const auto counts = hn::Ne(load(to.mask + i, part), hn::Zero(d));
    hn::Store(hn::IfThenElseZero(counts, element(i, part)), d, u + i);
    live += hn::CountTrue(d, counts);
  });
  const float scale = live > 0 ? sum_magnitudes(u) / static_cast<float>(live) : 0.f;
  to.packed[0] = std::bit_cast<int32_t>(scale);
  write_signs(u, to.packed + 1);
  const auto above = hn::Set(d, scale), below = hn::Set(d, -scale);
  for_vectors(to.count, [&](int64_t i, auto part) HWY_ATTR {
    const auto counts = hn::Ne(load(to.mask + i, part), hn::Zero(d));
    const auto value = hn::Load(d, u + i);
    const auto sent = hn::IfThenElse(hn::Ge(value, hn::Zero(d)), above, below);
    store(hn::IfThenElseZero(counts, hn::Sub(value, sent)), to.owed + i, part);
  });
}

// Divides n elements into blocks and calls fn(begin, block, count) for each, in parallel: the first
// element, the number of the block, and its size.
template <class Fn>
void for_sign_blocks(const Exec& exec, int64_t n, const Fn& fn) {
  parallel_for(exec, n, kSignGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i += kSignBlock) {
      fn(i, i / kSignBlock, end - i < kSignBlock ? end - i : kSignBlock);
    }
  });
}

template <typename Grad>
void sign_pack_typed(const Exec& exec, const SignPackArgs& a) {
  const auto* value = a.value.as<float>();
  const Grad* grad = a.grad.defined() ? a.grad.as<Grad>() : nullptr;
  const auto* mask = a.mask.as<float>();
  auto* owed = a.owed.as<float>();
  auto* packed = a.packed.as<int32_t>();
  const float clip = exec.step->clip_factor;
  for_sign_blocks(exec, a.value.numel(), [&](int64_t begin, int64_t block, int64_t count) HWY_ATTR {
    const F32Tag d;
    const auto of_value = hn::Set(d, a.value_factor), of_grad = hn::Set(d, a.grad_factor);
    const auto clipped = hn::Set(d, clip);
    pack_sign_block({mask + begin, owed + begin, packed + block * kSignWords, count},
                    [&](int64_t i, auto part) HWY_ATTR {
                      const int64_t at = begin + i;
                      auto u = hn::MulAdd(of_value, load(value + at, part), load(owed + at, part));
                      if (grad == nullptr) return u;
                      return hn::MulAdd(of_grad, hn::Mul(clipped, load(grad + at, part)), u);
                    });
  });
}

void sign_pack_target(const Exec& exec, const SignPackArgs& a) {
  if (a.grad.defined() && a.grad.dtype == DType::kBF16) return sign_pack_typed<bf16>(exec, a);
  sign_pack_typed<float>(exec, a);
}

void sign_mean_target(const Exec& exec, const SignMeanArgs& a) {
  const auto* parts = a.parts.as<int32_t>();
  const auto* mask = a.mask.as<float>();
  auto* owed = a.owed.as<float>();
  auto* packed = a.packed.as<int32_t>();
  const int64_t count = a.parts.size(0), stride = a.parts.stride(0);
  for_sign_blocks(exec, a.owed.numel(), [&](int64_t begin, int64_t block, int64_t n) HWY_ATTR {
    const F32Tag d;
    const auto share = hn::Set(d, 1.f / static_cast<float>(count));
    pack_sign_block({mask + begin, owed + begin, packed + block * kSignWords, n},
                    [&](int64_t i, auto part) HWY_ATTR {
                      const int32_t* of_part = parts + block * kSignWords;
                      auto sum = unpacked_at(of_part, i);
                      for (int64_t p = 1; p < count; ++p) {
                        of_part += stride;
                        sum = hn::Add(sum, unpacked_at(of_part, i));
                      }
                      return hn::MulAdd(share, sum, load(owed + begin + i, part));
                    });
  });
}

void sign_unpack_target(const Exec& exec, const SignUnpackArgs& a) {
  const auto* packed = a.packed.as<int32_t>();
  const auto* mask = a.mask.as<float>();
  auto* value = a.value.as<float>();
  for_sign_blocks(exec, a.value.numel(), [&](int64_t begin, int64_t block, int64_t count) HWY_ATTR {
    const int32_t* from = packed + block * kSignWords;
    for_vectors(count, [&](int64_t i, auto part) HWY_ATTR {
      const auto counts = hn::Ne(load(mask + begin + i, part), hn::Zero(F32Tag()));
      store(hn::IfThenElseZero(counts, unpacked_at(from, i)), value + begin + i, part);
    });
  });
}

}  // namespace shale::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shale::kernels {
HWY_EXPORT(sign_pack_target);
HWY_EXPORT(sign_mean_target);
HWY_EXPORT(sign_unpack_target);

template <>
void cpu::run(const Exec& exec, const SignPackArgs& a) {
  if (step_of("sign_pack", exec).non_finite != 0) return;
  HWY_DYNAMIC_DISPATCH(sign_pack_target)(exec, a);
}

template <>
void cpu::run(const Exec& exec, const SignMeanArgs& a) {
  if (step_of("sign_mean", exec).non_finite != 0) return;
  HWY_DYNAMIC_DISPATCH(sign_mean_target)(exec, a);
}

template <>
void cpu::run(const Exec& exec, const SignUnpackArgs& a) {
  if (step_of("sign_unpack", exec).non_finite != 0) return;
  HWY_DYNAMIC_DISPATCH(sign_unpack_target)(exec, a);
}

}  // namespace shale::kernels
#endif
