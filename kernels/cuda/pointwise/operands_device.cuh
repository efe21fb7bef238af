// Loads and stores of a pointwise program's inputs and outputs, four elements at a time. Included
// inside the namespace of a GPU's backend. Must not include anything, because kernels compiled at
// run time use it as text.

// Returns the offset of element i of the outputs in an input that is not dense.
__device__ __forceinline__ int64_t offset_of(const PointwiseOperands& operands,
                                             const PointwiseInput& input, int64_t i) {
  int64_t offset = 0;
#pragma unroll
  for (int d = kMaxDims - 1; d >= 0; --d) {
    if (d >= operands.dims) continue;
    const int64_t outer = d == 0 ? 0 : i / operands.size[d];
    offset += (i - outer * operands.size[d]) * input.stride[d];
    i = outer;
  }
  return offset;
}

__device__ __forceinline__ float element_to_float(uint8_t x) {
  return static_cast<float>(x);
}
template <typename T>
__device__ __forceinline__ float element_to_float(T x) {
  return to_float(x);
}

template <typename T>
__device__ __forceinline__ T element_from_float(float x) {
  if constexpr (sizeof(T) == 1) {
    return x != 0.f;
  } else {
    return from_float<T>(x);
  }
}

// Loads elements [i, i + count) of an input of type T as f32. If count is below 4, the first
// element is repeated.
template <typename T>
__device__ __forceinline__ void load_four(const PointwiseOperands& operands, int number, int64_t i,
                                          int count, float (&y)[4]) {
  const PointwiseInput& input = operands.inputs[number];
  const T* x = static_cast<const T*>(input.data);
  if (input.packed && count == 4) {
    const auto pack = load_pack<4>(x + i);
#pragma unroll
    for (int k = 0; k < 4; ++k) y[k] = element_to_float(pack.at[k]);
    return;
  }
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    const int64_t element = k < count ? i + k : i;
    y[k] = element_to_float(x[input.dense ? element : offset_of(operands, input, element)]);
  }
}

template <typename T>
__device__ __forceinline__ void store_four(const PointwiseOperands& operands, int number, int64_t i,
                                           int count, const float (&x)[4]) {
  const PointwiseOutput& output = operands.outputs[number];
  T* y = static_cast<T*>(output.data);
  Pack<T, 4> pack;
#pragma unroll
  for (int k = 0; k < 4; ++k) pack.at[k] = element_from_float<T>(x[k]);
  if (output.packed && count == 4) return store_pack(y + i, pack);
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    if (k < count) y[i + k] = pack.at[k];
  }
}
