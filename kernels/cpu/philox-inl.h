// Philox4x32-10 for many counters at once; the words of runtime/base/rng.h.
#if defined(SHALE_KERNELS_CPU_PHILOX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SHALE_KERNELS_CPU_PHILOX_INL_H_
#undef SHALE_KERNELS_CPU_PHILOX_INL_H_
#else
#define SHALE_KERNELS_CPU_PHILOX_INL_H_
#endif

#include "kernels/cpu/simd-inl.h"
#include "runtime/base/rng.h"

HWY_BEFORE_NAMESPACE();
namespace shale::kernels::HWY_NAMESPACE {

// out[4 j + k] = word k of counter {first[0] + j, first[1], first[2], first[3]} for j in [0, count).
// first[0] + j must not wrap.
inline void philox_words_scalar(PhiloxCounter first, PhiloxKey key, int64_t count, uint32_t* out) {
  for (int64_t j = 0; j < count; ++j) {
    const PhiloxCounter words = philox(
        {first[0] + static_cast<uint32_t>(j), first[1], first[2], first[3]}, key);
    for (size_t k = 0; k < 4; ++k) out[4 * j + static_cast<int64_t>(k)] = words[k];
  }
}

#if HWY_TARGET != HWY_SCALAR

using WordTag = hn::ScalableTag<uint64_t>;
using WordVec = hn::Vec<WordTag>;

// A word lies in the low half of a 64-bit lane, so that a product's two halves come out of one
// multiplication. The high half may hold anything: nothing reads it.
HWY_INLINE WordVec multiply_low(WordVec a, WordVec b) {
  const hn::Repartition<uint32_t, WordTag> d32;
  return hn::MulEven(hn::BitCast(d32, a), hn::BitCast(d32, b));
}

HWY_INLINE void philox_rounds(WordVec (&c)[4], PhiloxKey key) {
  const WordTag d;
  const auto mul0 = hn::Set(d, 0xD2511F53u), mul1 = hn::Set(d, 0xCD9E8D57u);
  for (int round = 0; round < 10; ++round) {
    const auto p0 = multiply_low(c[0], mul0), p1 = multiply_low(c[2], mul1);
    c[0] = hn::Xor(hn::Xor(hn::ShiftRight<32>(p1), c[1]), hn::Set(d, uint64_t{key[0]}));
    c[2] = hn::Xor(hn::Xor(hn::ShiftRight<32>(p0), c[3]), hn::Set(d, uint64_t{key[1]}));
    c[1] = p1;
    c[3] = p0;
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
}

inline void philox_words(PhiloxCounter first, PhiloxKey key, int64_t count, uint32_t* out) {
  const WordTag d;
  constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(WordTag()));
  const auto low = hn::Set(d, 0xffffffffu);
  int64_t j = 0;
  for (; j + kLanes <= count; j += kLanes) {
    WordVec c[4] = {hn::Iota(d, uint64_t{first[0]} + static_cast<uint64_t>(j)),
                    hn::Set(d, uint64_t{first[1]}), hn::Set(d, uint64_t{first[2]}),
                    hn::Set(d, uint64_t{first[3]})};
    philox_rounds(c, key);
    const auto words01 = hn::Or(hn::And(c[0], low), hn::ShiftLeft<32>(c[1]));
    const auto words23 = hn::Or(hn::And(c[2], low), hn::ShiftLeft<32>(c[3]));
    // The buffer is the words' own array, seen in pairs.
    hn::StoreInterleaved2(words01, words23, d, reinterpret_cast<uint64_t*>(out + 4 * j));
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
