#include "shale/kernels/tree_sum.h"

#include <algorithm>
#include <bit>
#include <type_traits>

#include "shale/kernels/check.h"
#include "shale/kernels/cuda/elementwise/map.cuh"
#include "shale/kernels/cuda/run.h"

// The kernels read every input once and write every output once. A thread's partial sums are in
// registers, one for each level of the tree, like the digits of a binary counter.

namespace shale::kernels::SHALE_BACKEND {
namespace {

// maximum number of inputs, and of outputs, that fit the launch arguments
constexpr size_t kMostPointers = 128;
constexpr int kLevels = 8;             // one level more than log2 of kMostPointers
static_assert(kMostPointers == size_t{1} << (kLevels - 1));

template <typename T, int kCount>
struct Sums {
  T at[kCount];
};

template <typename In, typename Out>
struct TreeSum {
  using Acc = std::conditional_t<std::is_same_v<In, bf16> || std::is_same_v<In, f16>, float, In>;
  static constexpr int kCount = sizeof(Acc) == 8 ? 2 : 4;
  const void* inputs[kMostPointers];
  void* outputs[kMostPointers];
  int input_count, output_count;

  explicit TreeSum(const TreeSumArgs& a)
      : inputs(),
        outputs(),
        input_count(static_cast<int>(a.inputs.size())),
        output_count(static_cast<int>(a.outputs.size())) {
    std::copy(a.inputs.begin(), a.inputs.end(), inputs);
    std::copy(a.outputs.begin(), a.outputs.end(), outputs);
  }

  bool packed() const {
    const auto aligned = [](const void* p, size_t element) {
      return reinterpret_cast<uintptr_t>(p) % (kCount * element) == 0;
    };
    return std::all_of(inputs, inputs + input_count,
                       [&](const void* p) { return aligned(p, sizeof(In)); }) &&
           std::all_of(outputs, outputs + output_count,
                       [&](const void* p) { return aligned(p, sizeof(Out)); });
  }

  template <int n>
  __device__ __forceinline__ Sums<Acc, n> input(int k, int64_t i) const {
    const Pack<In, n> pack = load_pack<n>(static_cast<const In*>(inputs[k]) + i);
    Sums<Acc, n> wide;
#pragma unroll
    for (int j = 0; j < n; ++j) {
      if constexpr (std::is_same_v<Acc, In>) {
        wide.at[j] = pack.at[j];
      } else {
        wide.at[j] = to_float(pack.at[j]);
      }
    }
    return wide;
  }

  template <int n>
  static __device__ __forceinline__ void add(const Sums<Acc, n>& left, Sums<Acc, n>& right) {
#pragma unroll
    for (int j = 0; j < n; ++j) right.at[j] = static_cast<Acc>(left.at[j] + right.at[j]);
  }

  template <int n>
  __device__ __forceinline__ Sums<Acc, n> load(int64_t i) const {
    // After n inputs, digits[d] is the sum of 2^d inputs if bit d of n is set.
    Sums<Acc, n> digits[kLevels] = {};
    for (int k = 0; k < input_count; ++k) {
      Sums<Acc, n> sum = input<n>(k, i);
      bool carried = true;
#pragma unroll
      for (int d = 0; d < kLevels; ++d) {
        const bool set = (k >> d) % 2 != 0;
        if (carried && set) add(digits[d], sum);
        if (carried && !set) digits[d] = sum;
        carried = carried && set;
      }
    }
    // The remaining sums are added, the newest first.
    Sums<Acc, n> total{};
    bool any = false;
#pragma unroll
    for (int d = 0; d < kLevels; ++d) {
      if ((input_count >> d) % 2 == 0) continue;
      if (any) {
        add(digits[d], total);
      } else {
        total = digits[d];
      }
      any = true;
    }
    return total;
  }

  template <int n>
  __device__ __forceinline__ void store(int64_t i, const Sums<Acc, n>& sum) const {
    Pack<Out, n> pack;
    if constexpr (std::is_same_v<Acc, float>) {
      pack = from_floats<Out>(std::bit_cast<Floats<n>>(sum));
    } else {
#pragma unroll
      for (int j = 0; j < n; ++j) pack.at[j] = sum.at[j];
    }
    for (int k = 0; k < output_count; ++k) store_pack(static_cast<Out*>(outputs[k]) + i, pack);
  }
};

template <typename In, typename Out = In>
void launch_sum(const Exec& exec, const TreeSumArgs& a, int64_t count) {
  map(exec, TreeSum<In, Out>(a), count);
}

// Copies a single input, as unsigned integers of the largest size that all addresses allow.
void copy_to_all(const Exec& exec, const TreeSumArgs& a) {
  const int64_t bytes = a.count * dtype_size(a.in_dtype);
  const auto fits = [&](uint64_t unit) {
    const auto aligned = [&](const void* p) { return reinterpret_cast<uintptr_t>(p) % unit == 0; };
    return static_cast<uint64_t>(bytes) % unit == 0 && aligned(a.inputs[0]) &&
           std::all_of(a.outputs.begin(), a.outputs.end(), aligned);
  };
  if (fits(8)) return launch_sum<uint64_t>(exec, a, bytes / 8);
  if (fits(4)) return launch_sum<uint32_t>(exec, a, bytes / 4);
  if (fits(2)) return launch_sum<uint16_t>(exec, a, bytes / 2);
  launch_sum<uint8_t>(exec, a, bytes);
}

template <typename In>
void launch_sum_to_float(const Exec& exec, const TreeSumArgs& a) {
  dispatch_float(a.out_dtype, [&]<typename Out>() { launch_sum<In, Out>(exec, a, a.count); });
}

}  // namespace

template <>
void run(const Exec& exec, const TreeSumArgs& a) {
  if (std::max(a.inputs.size(), a.outputs.size()) > kMostPointers) {
    throw ShapeError(cat("tree_sum: ", a.inputs.size(), " inputs and ", a.outputs.size(),
                         " outputs, expected at most ", kMostPointers, " of each on a GPU"));
  }
  if (a.inputs.size() == 1 && a.in_dtype == a.out_dtype) return copy_to_all(exec, a);
  switch (a.in_dtype) {
    case DType::kF64: return launch_sum<double>(exec, a, a.count);
    // Signed sums use unsigned integers, which wrap.
    case DType::kI32: return launch_sum<uint32_t>(exec, a, a.count);
    case DType::kI64: return launch_sum<uint64_t>(exec, a, a.count);
    case DType::kBF16: return launch_sum_to_float<bf16>(exec, a);
    case DType::kF16: return launch_sum_to_float<f16>(exec, a);
    default: return launch_sum_to_float<float>(exec, a);
  }
}

}  // namespace shale::kernels::SHALE_BACKEND
