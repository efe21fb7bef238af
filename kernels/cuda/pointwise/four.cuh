// Four f32 numbers of a thread, with the operations that kernels/pointwise_functions-inl.h needs.
// Included inside the namespace of a GPU's backend. Must not include anything, because kernels
// compiled at run time use it as text.

struct Four {
  float at[4];
};
struct FourBools {
  bool at[4];
};

template <class Fn>
__device__ __forceinline__ Four each_of_four(const Fn& fn) {
  Four y;
#pragma unroll
  for (int i = 0; i < 4; ++i) y.at[i] = fn(i);
  return y;
}
template <class Fn>
__device__ __forceinline__ FourBools test_of_four(const Fn& fn) {
  FourBools y;
#pragma unroll
  for (int i = 0; i < 4; ++i) y.at[i] = fn(i);
  return y;
}

__device__ __forceinline__ Four operator+(Four a, Four b) {
  return each_of_four([&](int i) { return a.at[i] + b.at[i]; });
}
__device__ __forceinline__ Four operator-(Four a, Four b) {
  return each_of_four([&](int i) { return a.at[i] - b.at[i]; });
}
__device__ __forceinline__ Four operator*(Four a, Four b) {
  return each_of_four([&](int i) { return a.at[i] * b.at[i]; });
}
__device__ __forceinline__ Four operator/(Four a, Four b) {
  return each_of_four([&](int i) { return a.at[i] / b.at[i]; });
}
__device__ __forceinline__ FourBools operator<(Four a, Four b) {
  return test_of_four([&](int i) { return a.at[i] < b.at[i]; });
}
__device__ __forceinline__ FourBools operator<=(Four a, Four b) {
  return test_of_four([&](int i) { return a.at[i] <= b.at[i]; });
}
__device__ __forceinline__ FourBools operator==(Four a, Four b) {
  return test_of_four([&](int i) { return a.at[i] == b.at[i]; });
}
__device__ __forceinline__ FourBools is_nan(Four x) {
  return test_of_four([&](int i) { return x.at[i] != x.at[i]; });
}
__device__ __forceinline__ Four choose(FourBools mask, Four yes, Four no) {
  return each_of_four([&](int i) { return mask.at[i] ? yes.at[i] : no.at[i]; });
}
__device__ __forceinline__ Four like(Four, float value) {
  return {{value, value, value, value}};
}
__device__ __forceinline__ Four multiply_add(Four a, Four b, Four c) {
  return each_of_four([&](int i) { return fmaf(a.at[i], b.at[i], c.at[i]); });
}
__device__ __forceinline__ Four square_root(Four x) {
  return each_of_four([&](int i) { return sqrtf(x.at[i]); });
}
__device__ __forceinline__ Four absolute(Four x) {
  return each_of_four([&](int i) { return fabsf(x.at[i]); });
}
__device__ __forceinline__ Four with_sign_of(Four magnitude, Four sign) {
  return each_of_four([&](int i) { return copysignf(magnitude.at[i], sign.at[i]); });
}
__device__ __forceinline__ Four shift_to_exponent(Four x) {
  return each_of_four([&](int i) {
    return __builtin_bit_cast(float, __builtin_bit_cast(unsigned, x.at[i]) << 23);
  });
}

__device__ __forceinline__ Four split_exponent(Four x, Four& mantissa) {
  constexpr int kLowest = 0x3f3504f3;  // bits of sqrt(1/2)
  Four exponent;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int bits = __builtin_bit_cast(int, x.at[i]) - kLowest;
    mantissa.at[i] = __builtin_bit_cast(float, (bits & 0x007fffff) + kLowest);
    exponent.at[i] = static_cast<float>(bits >> 23);
  }
  return exponent;
}

__device__ __forceinline__ Four reduce_quarters(Four x, Four& quarter) {
  Four y;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const double wide = x.at[i];
    const double k = fma(wide, 0x1.45f306dc9c883p-1, 0x1.8p52) - 0x1.8p52;
    double r = fma(-k, 0x1.921fb54442d18p+0, wide);
    r = fma(-k, 0x1.1a62633145c07p-54, r);
    const double turns = fma(k, 0.25, 0x1.8p52) - 0x1.8p52;
    const auto q = static_cast<float>(fma(-turns, 4.0, k));
    quarter.at[i] = q < 0.f ? q + 4.f : q;
    y.at[i] = static_cast<float>(r);
  }
  return y;
}

// Rounds to T, and keeps the result in f32.
template <typename T>
__device__ __forceinline__ Four rounded(Four x) {
  return each_of_four([&](int i) { return to_float(from_float<T>(x.at[i])); });
}
