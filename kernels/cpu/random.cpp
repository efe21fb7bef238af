#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "shale/kernels/cpu/random.cpp"
#include <hwy/foreach_target.h>
//
#include <algorithm>
#include <cmath>

#include "shale/kernels/check.h"
#include "shale/kernels/cpu/loop-inl.h"
#include "shale/kernels/cpu/math-inl.h"
#include "shale/kernels/cpu/parallel.h"
#include "shale/kernels/cpu/philox-inl.h"
#include "shale/kernels/cpu/run.h"
#include "shale/kernels/random.h"

// Normal numbers by the Box-Muller method: from a pair of words (a, b), r = sqrt(-2 ln(1 -
// uniform(a))) and t = 2 pi uniform(b) give r cos t and r sin t. A thread owns blocks that begin at
// multiples of kBlock in the whole parameter, not in the range that is filled, so that the
// instructions for an element do not depend on the range. Within a block only the groups of kGroup
// elements that are needed are computed. If a submatrix is filled, each of its rows is such a
// range.

HWY_BEFORE_NAMESPACE();
namespace shale::kernels::HWY_NAMESPACE {

inline constexpr int64_t kBlock = 1024;
inline constexpr int64_t kGroup = 64;  // elements; must be a multiple of two vectors

// Computes ln x for x in [2^-24, 1]: relative error at most 2 ulp, also near 1.
HWY_INLINE F32Vec log_f32(F32Vec x) {
  const F32Tag d;
  const hn::RebindToSigned<F32Tag> di;
  // x = 2^k m, m in [sqrt(1/2), sqrt(2)): subtracting the bits of sqrt(1/2) carries into the
  // exponent.
  const auto sqrt_half = hn::Set(di, 0x3f3504f3);
  const auto bits = hn::Sub(hn::BitCast(di, x), sqrt_half);
  const auto k = hn::ShiftRight<23>(bits);
  const auto m_bits = hn::Add(hn::And(bits, hn::Set(di, 0x007fffff)), sqrt_half);
  const auto f = hn::Sub(hn::BitCast(d, m_bits), hn::Set(d, 1.f));  // the subtraction is exact
  const auto p = horner(d, f, 0.333333312f, -0.24999997f, 0.200007157f, -0.166678023f, 0.142490576f,
                        -0.124256873f, 0.116854199f, -0.11479734f, 0.0697161171f);
  const auto f2 = hn::Mul(f, f);
  // ln(1 + f) = f - f^2 / 2 + f^3 p
  const auto tail = hn::MulAdd(hn::Mul(f2, f), p, hn::Mul(hn::Set(d, -0.5f), f2));
  const auto exponent = hn::ConvertTo(d, k);
  const auto low = hn::MulAdd(exponent, hn::Set(d, 0x1.7f7d1cp-20f), tail);
  return hn::Add(hn::MulAdd(exponent, hn::Set(d, 0x1.62e4p-1f), f), low);
}

struct SinCos {
  F32Vec sin, cos;
};

// Computes sine and cosine of 2 pi u, for u a multiple of 2^-24 in [0, 1). The reduction to a
// quarter turn is exact.
HWY_INLINE SinCos sincos_turns(F32Vec u) {
  const F32Tag d;
  const hn::RebindToSigned<F32Tag> di;
  const auto quarters = hn::Mul(u, hn::Set(d, 4.f));
  const auto magic = hn::Set(d, 0x1.8p23f);
  const auto shifted = hn::Add(quarters, magic);
  const auto q = hn::BitCast(di, shifted);  // the low two bits of q count quarter turns
  const auto f = hn::Sub(quarters, hn::Sub(shifted, magic));  // f is in [-1/2, 1/2] quarter turns
  const auto t = hn::Mul(f, f);
  const auto s = hn::Mul(
      f, horner(d, t, 1.57079633f, -0.645964096f, 0.0796925827f, -0.00468126625f, 0.000158206299f));
  const auto c = horner(d, t, 1.f, -1.23370054f, 0.253669204f, -0.0208600695f, 0.000903628067f);
  // An odd number of quarters swaps sine and cosine; the second bit gives the signs.
  const auto one = hn::Set(di, 1);
  const auto swap = hn::RebindMask(d, hn::Ne(hn::And(q, one), hn::Zero(di)));
  const auto sin_sign = hn::ShiftLeft<30>(hn::And(q, hn::Set(di, 2)));
  const auto cos_sign = hn::ShiftLeft<30>(hn::And(hn::Add(q, one), hn::Set(di, 2)));
  return {.sin = hn::Xor(hn::IfThenElse(swap, c, s), hn::BitCast(d, sin_sign)),
          .cos = hn::Xor(hn::IfThenElse(swap, s, c), hn::BitCast(d, cos_sign))};
}

// Replaces `count` random words (a multiple of kGroup) by as many normal numbers; words 2i and 2i +
// 1 give numbers 2i and 2i + 1.
void normals_of_words(const uint32_t* words, int64_t count, float mean, float std, float* out) {
  const F32Tag d;
  const hn::RebindToUnsigned<F32Tag> du;
  const hn::RebindToSigned<F32Tag> di;
  const auto unit = hn::Set(d, 0x1p-24f), one = hn::Set(d, 1.f);
  for (int64_t i = 0; i < count; i += 2 * kF32Lanes) {
    hn::Vec<decltype(du)> first, second;
    hn::LoadInterleaved2(du, words + i, first, second);
    const auto u1 = hn::ConvertTo(d, hn::BitCast(di, hn::ShiftRight<8>(first)));
    const auto u2 = hn::ConvertTo(d, hn::BitCast(di, hn::ShiftRight<8>(second)));
    const auto log = log_f32(hn::NegMulAdd(u1, unit, one));  // 1 - u1 is exact and never 0
    const auto radius = hn::Mul(hn::Sqrt(hn::Mul(hn::Set(d, -2.f), log)), hn::Set(d, std));
    const SinCos angle = sincos_turns(hn::Mul(u2, unit));
    const auto shift = hn::Set(d, mean);
    hn::StoreInterleaved2(hn::MulAdd(radius, angle.cos, shift),
                          hn::MulAdd(radius, angle.sin, shift), d, out + i);
  }
}

// Fills elements [from, to) of the whole parameter. They are in one block.
template <typename T>
void fill_in_block(const RandomNormalArgs& a, PhiloxKey key, int64_t from, int64_t to, T* target) {
  HWY_ALIGN uint32_t words[kBlock];
  HWY_ALIGN float normals[kBlock];
  const int64_t begin = from / kGroup * kGroup, count = (to - begin + kGroup - 1) / kGroup * kGroup;
  // The low word of the counters does not wrap within a block: 2^32 is a multiple of the counters
  // per block.
  const auto group = static_cast<uint64_t>(begin) / 4;
  philox_words({static_cast<uint32_t>(group), static_cast<uint32_t>(group >> 32),
                static_cast<uint32_t>(a.stream), static_cast<uint32_t>(a.stream >> 32)},
               key, count / 4, words);
  if (a.uniform) {
    for (int64_t i = 0; i < count; ++i) normals[i] = std::fma(uniform_f32(words[i]), a.std, a.mean);
  } else {
    normals_of_words(words, count, a.mean, a.std, normals);
  }
  const float* source = normals + (from - begin);
  for_vectors(to - from, [&](int64_t i, auto part)
                             HWY_ATTR { store(load(source + i, part), target + i, part); });
}

template <typename T>
void random_normal_typed(const Exec& exec, const RandomNormalArgs& a) {
  T* y = a.y.as<T>();
  const int64_t run = a.run > 0 ? a.run : a.y.numel(), rows = a.y.numel() / run;
  const PhiloxKey key = rng_key(a.seed, RngDomain::kInit);
  // Maximum number of blocks that a row overlaps.
  const int64_t blocks = run / kBlock + 2;
  parallel_for(exec, rows * blocks, 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = i / blocks, first = a.first + row * a.stride, last = first + run;
      const int64_t block = first / kBlock + i % blocks;
      const int64_t from = std::max(first, block * kBlock);
      const int64_t to = std::min(last, (block + 1) * kBlock);
      if (from < to) fill_in_block(a, key, from, to, y + row * run + (from - first));
    }
  });
}

void random_normal_target(const Exec& exec, const RandomNormalArgs& a) {
  dispatch_float(a.y.dtype, [&]<typename T>() { random_normal_typed<T>(exec, a); });
}

}  // namespace shale::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shale::kernels {
HWY_EXPORT(random_normal_target);

template <>
void cpu::run(const Exec& exec, const RandomNormalArgs& a) {
  if (a.y.numel() == 0) return;
  HWY_DYNAMIC_DISPATCH(random_normal_target)(exec, a);
}

}  // namespace shale::kernels
#endif
