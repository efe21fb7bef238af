// Philox4x32-10 for many counters at once, with the same words as base/rng.h.
#if defined(SHALE_KERNELS_CPU_PHILOX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SHALE_KERNELS_CPU_PHILOX_INL_H_
#undef SHALE_KERNELS_CPU_PHILOX_INL_H_
#else
#define SHALE_KERNELS_CPU_PHILOX_INL_H_
#endif

#include "shale/base/rng.h"
#include "shale/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace shale::kernels::HWY_NAMESPACE {

// Writes out[4 j + k] = word k of counter {first[0] + j, first[1], first[2], first[3]} for j in [0,
// count). first[0] + j must not wrap.
inline void philox_words_scalar(PhiloxCounter first, PhiloxKey key, int64_t count, uint32_t* out) {
  for (int64_t j = 0; j < count; ++j) {
    const PhiloxCounter words =
        philox({first[0] + static_cast<uint32_t>(j), first[1], first[2], first[3]}, key);
    for (size_t k = 0; k < 4; ++k) out[4 * j + static_cast<int64_t>(k)] = words[k];
  }
}

#if HWY_TARGET != HWY_SCALAR

using WordTag = hn::ScalableTag<uint64_t>;
using WordVec = hn::Vec<WordTag>;

// Multiplies words. A word is in the low half of a 64-bit lane, so that one multiplication gives
// both halves of a product. The high half is never read and may hold anything.
HWY_INLINE WordVec multiply_low(WordVec a, WordVec b) {
  const hn::Repartition<uint32_t, WordTag> d32;
  return hn::MulEven(hn::BitCast(d32, a), hn::BitCast(d32, b));
}

struct PhiloxState {
  WordVec c0, c1, c2, c3;

  HWY_INLINE PhiloxState(PhiloxCounter first, int64_t j)
      : c0(hn::Iota(WordTag(), uint64_t{first[0]} + static_cast<uint64_t>(j))),
        c1(hn::Set(WordTag(), uint64_t{first[1]})),
        c2(hn::Set(WordTag(), uint64_t{first[2]})),
        c3(hn::Set(WordTag(), uint64_t{first[3]})) {}

  HWY_INLINE void round(WordVec key0, WordVec key1) {
    const auto p0 = multiply_low(c0, hn::Set(WordTag(), 0xD2511F53u));
    const auto p1 = multiply_low(c2, hn::Set(WordTag(), 0xCD9E8D57u));
    c0 = hn::Xor(hn::Xor(c1, key0), hn::ShiftRight<32>(p1));
    c2 = hn::Xor(hn::Xor(c3, key1), hn::ShiftRight<32>(p0));
    c1 = p1;
    c3 = p0;
  }

  HWY_INLINE void store_words(uint32_t* out) const {
    const auto low = hn::Set(WordTag(), 0xffffffffu);
    const auto words01 = hn::Or(hn::And(c0, low), hn::ShiftLeft<32>(c1));
    const auto words23 = hn::Or(hn::And(c2, low), hn::ShiftLeft<32>(c3));
    // Pairs of words are stored as 64-bit numbers into the array of words.
    hn::StoreInterleaved2(words01, words23, WordTag(), reinterpret_cast<uint64_t*>(out));
  }
};

inline void philox_words(PhiloxCounter first, PhiloxKey key, int64_t count, uint32_t* out) {
  const WordTag d;
  constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(WordTag()));
  constexpr uint32_t kWeyl0 = 0x9E3779B9u, kWeyl1 = 0xBB67AE85u;
  int64_t j = 0;
  // The loop computes four states at a time, because each round depends on the one before.
  for (; j + 4 * kLanes <= count; j += 4 * kLanes) {
    PhiloxState a(first, j), b(first, j + kLanes), e(first, j + 2 * kLanes),
        f(first, j + 3 * kLanes);
    PhiloxKey round_key = key;
    for (int round = 0; round < 10; ++round) {
      const auto key0 = hn::Set(d, uint64_t{round_key[0]}),
                 key1 = hn::Set(d, uint64_t{round_key[1]});
      a.round(key0, key1);
      b.round(key0, key1);
      e.round(key0, key1);
      f.round(key0, key1);
      round_key = {round_key[0] + kWeyl0, round_key[1] + kWeyl1};
    }
    a.store_words(out + 4 * j);
    b.store_words(out + 4 * (j + kLanes));
    e.store_words(out + 4 * (j + 2 * kLanes));
    f.store_words(out + 4 * (j + 3 * kLanes));
  }
  first[0] += static_cast<uint32_t>(j);
  philox_words_scalar(first, key, count - j, out + 4 * j);
}

#else

inline void philox_words(PhiloxCounter first, PhiloxKey key, int64_t count, uint32_t* out) {
  philox_words_scalar(first, key, count, out);
}

#endif

}  // namespace shale::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
