#pragma once

#include "shale/base/view.h"
#include "shale/kernels/check.h"
#include "shale/kernels/simt/simt.h"

namespace shale::kernels::SHALE_BACKEND {

// Prefetches elements [begin, end) of an array: threads 0, 1, ... prefetch one line each.
template <typename T>
__device__ __forceinline__ void prefetch_run(const T* data, int64_t begin, int64_t end,
                                             int thread) {
  constexpr int kLine = 128 / sizeof(T);
  const int64_t i = begin + int64_t{thread} * kLine;
  if (i < end) prefetch_l2(data + i);
}

// An array whose type is known at compile time.
template <typename T>
struct Typed {
  using Element = T;
  static constexpr int kWidest = sizeof(T);  // maximum bytes of an element
  T* data;

  explicit Typed(const View& view) : data(view.as<T>()) {}
  int element_bytes() const { return sizeof(T); }

  template <int kCount>
  __device__ __forceinline__ Floats<kCount> load(int64_t i) const {
    return load_floats<kCount>(data + i);
  }
  template <int kCount>
  __device__ __forceinline__ void store(int64_t i, const Floats<kCount>& values) const {
    store_floats(data + i, values);
  }
};

// An array of f32, bf16 or f16, distinguished at run time. All threads take the same branch, which
// costs little compared with memory access, and avoids a kernel for every combination of dtypes.
struct Mixed {
  static constexpr int kWidest = sizeof(float);
  void* data;
  DType dtype;

  explicit Mixed(const View& view) : data(view.data), dtype(view.dtype) {}
  int element_bytes() const { return static_cast<int>(dtype_size(dtype)); }

  template <int kCount>
  __device__ __forceinline__ Floats<kCount> load(int64_t i) const {
    switch (dtype) {
      case DType::kBF16: return load_floats<kCount>(static_cast<const bf16*>(data) + i);
      case DType::kF16: return load_floats<kCount>(static_cast<const f16*>(data) + i);
      default: return load_floats<kCount>(static_cast<const float*>(data) + i);
    }
  }
  template <int kCount>
  __device__ __forceinline__ void store(int64_t i, const Floats<kCount>& values) const {
    switch (dtype) {
      case DType::kBF16: return store_floats(static_cast<bf16*>(data) + i, values);
      case DType::kF16: return store_floats(static_cast<f16*>(data) + i, values);
      default: return store_floats(static_cast<float*>(data) + i, values);
    }
  }
};

// Returns whether packs of `count` elements from the array's start on are aligned; true if the
// array is omitted.
template <class Operand>
bool allows_packs(const Operand& operand, int count) {
  return reinterpret_cast<uintptr_t>(operand.data) %
             static_cast<uintptr_t>(count * operand.element_bytes()) ==
         0;
}

}  // namespace shale::kernels::SHALE_BACKEND
