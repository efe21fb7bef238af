// Loops over SIMD vectors of f32, the last of which may be partial. The last vector runs the same
// instructions as full vectors, on fewer lanes, so an element's bits never depend on where a span
// begins or ends.
#if defined(SHALE_KERNELS_CPU_LOOP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SHALE_KERNELS_CPU_LOOP_INL_H_
#undef SHALE_KERNELS_CPU_LOOP_INL_H_
#else
#define SHALE_KERNELS_CPU_LOOP_INL_H_
#endif

#include "shale/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace shale::kernels::HWY_NAMESPACE {

// The part of a vector that an iteration handles: all lanes (Whole), or the first `count` lanes
// (Part).
struct Whole {};
struct Part {
  int64_t count;
};

template <typename T>
HWY_INLINE F32Vec load(const T* from, Whole) {
  return load(F32Tag(), from);
}
template <typename T>
HWY_INLINE F32Vec load(const T* from, Part part) {
  return load_n(F32Tag(), from, part.count);
}
template <typename T>
HWY_INLINE void store(F32Vec v, T* to, Whole) {
  store(v, F32Tag(), to);
}
template <typename T>
HWY_INLINE void store(F32Vec v, T* to, Part part) {
  store_n(v, F32Tag(), to, part.count);
}
// Returns v with zeros in the lanes outside the part, for sums.
HWY_INLINE F32Vec inside(F32Vec v, Whole) {
  return v;
}
HWY_INLINE F32Vec inside(F32Vec v, Part part) {
  return hn::IfThenElseZero(hn::FirstN(F32Tag(), static_cast<size_t>(part.count)), v);
}

// Calls fn(i, part) for each vector of elements [0, n); i is its first element.
template <class Fn>
HWY_INLINE void for_vectors(int64_t n, const Fn& fn) {
  int64_t i = 0;
  for (; i + kF32Lanes <= n; i += kF32Lanes) fn(i, Whole());
  if (i < n) fn(i, Part{n - i});
}

// Compile-time index of one of kTurns accumulators. A single accumulator that waits for its own
// last addition runs at a quarter of the speed of four independent ones.
template <int k>
struct Turn {
  static constexpr int value = k;
};
inline constexpr int kTurns = 4;

// Calls fn(i, part, turn) for each vector of elements [0, n), with the accumulators `turn` in
// rotation.
template <class Fn>
HWY_INLINE void for_vectors_in_turns(int64_t n, const Fn& fn) {
  constexpr int64_t kL = kF32Lanes;
  int64_t i = 0;
  for (; i + kTurns * kL <= n; i += kTurns * kL) {
    fn(i, Whole(), Turn<0>());
    fn(i + kL, Whole(), Turn<1>());
    fn(i + 2 * kL, Whole(), Turn<2>());
    fn(i + 3 * kL, Whole(), Turn<3>());
  }
  for (; i + kL <= n; i += kL) fn(i, Whole(), Turn<0>());
  if (i < n) fn(i, Part{n - i}, Turn<1>());
}

// A sum with kTurns accumulators.
struct TurnSum {
  F32Vec turns[kTurns];

  // The constructor zeroes `turns`, not default initialisers, because an implicit constructor is
  // compiled for the baseline instruction set.
  HWY_INLINE TurnSum() {
    for (F32Vec& turn : turns) turn = hn::Zero(F32Tag());
  }
  template <int k>
  HWY_INLINE void add(F32Vec v, Turn<k>) {
    turns[k] = hn::Add(turns[k], v);
  }
  template <int k>
  HWY_INLINE void add_product(F32Vec a, F32Vec b, Turn<k>) {
    turns[k] = hn::MulAdd(a, b, turns[k]);
  }
  HWY_INLINE float total() const {
    return sum_lanes(F32Tag(), hn::Add(hn::Add(turns[0], turns[1]), hn::Add(turns[2], turns[3])));
  }
};

}  // namespace shale::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
