#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "shale/kernels/cpu/tree_sum.cpp"
#include <hwy/foreach_target.h>
//
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "shale/kernels/cpu/parallel.h"
#include "shale/kernels/cpu/run.h"
#include "shale/kernels/cpu/simd-inl.h"
#include "shale/kernels/tree_sum.h"

// tree_sum processes blocks of elements that fit the L1 cache. The partial sums of a block are on a
// small stack with one entry per level of the tree, so every input is read once and every output
// written once, for any number of inputs.

HWY_BEFORE_NAMESPACE();
namespace shale::kernels::HWY_NAMESPACE {

inline constexpr int64_t kBlock = 512;
inline constexpr int kMaxLevels = 32;       // levels of partial sums, enough for 2^32 inputs
inline constexpr size_t kFusedOutputs = 4;  // writing more outputs at a time is slower

template <typename T>
using Accumulator = std::conditional_t<sizeof(T) == 2, float, T>;

// ---- Vectors of the accumulator type ----

template <class D, typename T>
HWY_INLINE hn::Vec<D> load_any(D d, const T* from) {
  if constexpr (std::is_same_v<hn::TFromD<D>, float>) {
    return load(d, from);
  } else {
    return hn::LoadU(d, from);
  }
}

template <typename Acc, typename T>
HWY_INLINE Acc widen(T x) {
  if constexpr (std::is_same_v<Acc, float>) {
    return to_f32(x);
  } else {
    return x;
  }
}

// Adds two numbers. Integers wrap, as in vectors.
template <typename Acc>
HWY_INLINE Acc add_scalar(Acc a, Acc b) {
  if constexpr (std::is_integral_v<Acc>) {
    using Unsigned = std::make_unsigned_t<Acc>;
    return static_cast<Acc>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b));
  } else {
    return a + b;
  }
}

// Computes to = a + b.
template <typename Acc, typename A, typename B, typename To>
HWY_INLINE void add_block(const A* a, const B* b, To* to, int64_t count) {
  const hn::ScalableTag<Acc> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto sum = hn::Add(load_any(d, a + i), load_any(d, b + i));
    if constexpr (std::is_same_v<Acc, float>) {
      store(sum, d, to + i);
    } else {
      hn::StoreU(sum, d, to + i);
    }
  }
  for (; i < count; ++i) {
    to[i] = static_cast<To>(add_scalar(widen<Acc>(a[i]), widen<Acc>(b[i])));
  }
}

// Writes a + b to all of `outputs` in one pass.
template <typename Acc, typename A, typename B>
HWY_INLINE void add_block_to_all(const A* a, const B* b, Acc* const* outputs, size_t output_count,
                                 int64_t count, bool stream) {
  const hn::ScalableTag<Acc> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto sum = hn::Add(load_any(d, a + i), load_any(d, b + i));
    for (size_t k = 0; k < output_count; ++k) {
      if (stream) {
        hn::Stream(sum, d, outputs[k] + i);
      } else {
        hn::StoreU(sum, d, outputs[k] + i);
      }
    }
  }
  for (; i < count; ++i) {
    const Acc sum = add_scalar(widen<Acc>(a[i]), widen<Acc>(b[i]));
    for (size_t k = 0; k < output_count; ++k) outputs[k][i] = sum;
  }
}

// ---- Sum of one block ----

HWY_INLINE bool aligned(const void* address) {
  return reinterpret_cast<uintptr_t>(address) % 64 == 0;
}

// Copies bytes. `stream` bypasses the cache, but only for a 64-byte aligned destination.
HWY_INLINE void copy_bytes(const void* from, void* to, int64_t bytes, bool stream) {
  if (!stream || !aligned(to)) {
    if (from != to) std::memcpy(to, from, static_cast<size_t>(bytes));
    return;
  }
  const hn::ScalableTag<uint8_t> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto* source = static_cast<const uint8_t*>(from);
  auto* target = static_cast<uint8_t*>(to);
  int64_t i = 0;
  for (; i + lanes <= bytes; i += lanes) hn::Stream(hn::LoadU(d, source + i), d, target + i);
  std::memcpy(target + i, source + i, static_cast<size_t>(bytes - i));
}

template <typename Out>
HWY_INLINE void copy_to_all(const TreeSumArgs& args, const Out* from, int64_t begin,
                            int64_t count) {
  for (void* const output : args.outputs) {
    copy_bytes(from, static_cast<Out*>(output) + begin, count * static_cast<int64_t>(sizeof(Out)),
               args.stream);
  }
}

// Computes the last addition of a block, a + b, and writes the sum to all outputs.
template <typename Acc, typename Out, typename A, typename B>
HWY_INLINE void finish_block(const TreeSumArgs& args, const A* a, const B* b, int64_t begin,
                             int64_t count) {
  if constexpr (std::is_same_v<Acc, Out>) {
    if (args.outputs.size() <= kFusedOutputs) {
      Out* outputs[kFusedOutputs];
      bool stream = args.stream;
      for (size_t k = 0; k < args.outputs.size(); ++k) {
        outputs[k] = static_cast<Out*>(args.outputs[k]) + begin;
        stream = stream && aligned(outputs[k]);
      }
      add_block_to_all<Acc>(a, b, outputs, args.outputs.size(), count, stream);
      return;
    }
  }
  HWY_ALIGN Out sum[kBlock];
  add_block<Acc>(a, b, sum, count);
  copy_to_all(args, sum, begin, count);
}

// Sums three or more inputs. Each entry of the stack is the sum of a complete subtree. Two subtrees
// of the same size are added as soon as both exist, like carries of a binary counter. At the end
// the remaining subtrees are added, the last one first.
template <typename In, typename Out>
HWY_INLINE void sum_block(const TreeSumArgs& args, int64_t begin, int64_t count) {
  using Acc = Accumulator<In>;
  HWY_ALIGN Acc stack[kMaxLevels][kBlock];
  const auto input = [&](size_t i) { return static_cast<const In*>(args.inputs[i]) + begin; };
  const size_t inputs = args.inputs.size();
  const bool odd = inputs % 2 != 0;
  const size_t pairs = inputs / 2;
  size_t depth = 0;
  for (size_t pair = 0; pair < pairs; ++pair) {
    add_block<Acc>(input(2 * pair), input(2 * pair + 1), stack[depth++], count);
    if (pair + 1 == pairs && !odd) break;  // the loops below add this last pair to the earlier ones
    for (size_t carry = pair; carry & 1; carry >>= 1) {
      --depth;
      add_block<Acc>(stack[depth - 1], stack[depth], stack[depth - 1], count);
    }
  }
  if (odd) {
    const In* last = input(inputs - 1);
    if (depth == 1) return finish_block<Acc, Out>(args, stack[0], last, begin, count);
    add_block<Acc>(stack[depth - 1], last, stack[depth - 1], count);
  }
  for (; depth > 2; --depth) {
    add_block<Acc>(stack[depth - 2], stack[depth - 1], stack[depth - 2], count);
  }
  finish_block<Acc, Out>(args, stack[0], stack[1], begin, count);
}

// Handles a single input: copies it, or casts it between float types.
template <typename In, typename Out>
HWY_INLINE void copy_block(const TreeSumArgs& args, int64_t begin, int64_t count) {
  const In* from = static_cast<const In*>(args.inputs[0]) + begin;
  if constexpr (std::is_same_v<In, Out>) {
    copy_to_all(args, from, begin, count);
  } else {
    const F32Tag d;
    HWY_ALIGN Out cast[kBlock];
    int64_t i = 0;
    for (; i + kF32Lanes <= count; i += kF32Lanes) store(load(d, from + i), d, cast + i);
    for (; i < count; ++i) cast[i] = static_cast<Out>(to_f32(from[i]));
    copy_to_all(args, static_cast<const Out*>(cast), begin, count);
  }
}

// ---- Sum of a range of elements ----

template <typename In, typename Out>
HWY_NOINLINE void sum_range(const TreeSumArgs& args, int64_t begin, int64_t end) {
  using Acc = Accumulator<In>;
  int64_t block = kBlock;
  if (args.stream && !args.outputs.empty()) {
    // A short first block aligns the outputs to a cache line.
    const auto address = reinterpret_cast<uintptr_t>(static_cast<Out*>(args.outputs[0]) + begin);
    const auto head = static_cast<int64_t>((64 - address % 64) % 64 / sizeof(Out));
    if (head != 0) block = head;
  }
  for (int64_t i = begin; i < end; i += block, block = kBlock) {
    const int64_t count = std::min(block, end - i);
    if (args.inputs.size() == 1) {
      copy_block<In, Out>(args, i, count);
    } else if (args.inputs.size() == 2) {
      finish_block<Acc, Out>(args, static_cast<const In*>(args.inputs[0]) + i,
                             static_cast<const In*>(args.inputs[1]) + i, i, count);
    } else {
      sum_block<In, Out>(args, i, count);
    }
  }
  if (args.stream) hwy::FlushStream();
}

template <typename In>
HWY_INLINE void sum_range_to_float(const TreeSumArgs& args, int64_t begin, int64_t end) {
  switch (args.out_dtype) {
    case DType::kF32: return sum_range<In, float>(args, begin, end);
    case DType::kBF16: return sum_range<In, bf16>(args, begin, end);
    default: return sum_range<In, f16>(args, begin, end);
  }
}

void tree_sum_range(const TreeSumArgs& args, int64_t begin, int64_t end) {
  switch (args.in_dtype) {
    case DType::kF32: return sum_range_to_float<float>(args, begin, end);
    case DType::kBF16: return sum_range_to_float<bf16>(args, begin, end);
    case DType::kF16: return sum_range_to_float<f16>(args, begin, end);
    case DType::kF64: return sum_range<double, double>(args, begin, end);
    case DType::kI32: return sum_range<int32_t, int32_t>(args, begin, end);
    case DType::kI64: return sum_range<int64_t, int64_t>(args, begin, end);
    default: return;
  }
}

// Copies the single input to all outputs, for any dtype. The range is in bytes.
void copy_range(const TreeSumArgs& args, int64_t begin, int64_t end) {
  // bytes per piece: the first output reads it from memory, later outputs from the L1 cache
  constexpr int64_t kBytes = 16 << 10;
  const auto* from = static_cast<const uint8_t*>(args.inputs[0]);
  for (int64_t i = begin; i < end; i += kBytes) {
    for (void* const output : args.outputs) {
      copy_bytes(from + i, static_cast<uint8_t*>(output) + i, std::min(kBytes, end - i),
                 args.stream);
    }
  }
  if (args.stream) hwy::FlushStream();
}

}  // namespace shale::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shale::kernels {

HWY_EXPORT(tree_sum_range);
HWY_EXPORT(copy_range);

template <>
void cpu::run(const Exec& exec, const TreeSumArgs& args) {
  if (args.inputs.size() == 1 && args.in_dtype == args.out_dtype) {
    parallel_for(exec, args.count * dtype_size(args.in_dtype), 256 << 10,
                 [&](int64_t begin, int64_t end) {
                   HWY_DYNAMIC_DISPATCH(copy_range)(args, begin, end);
                 });
    return;
  }
  parallel_for(exec, args.count, 64 << 10, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(tree_sum_range)(args, begin, end);
  });
}

}  // namespace shale::kernels
#endif
