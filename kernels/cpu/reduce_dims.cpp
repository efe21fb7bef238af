#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "shale/kernels/cpu/reduce_dims.cpp"
#include <hwy/foreach_target.h>
//
#include <algorithm>
#include <limits>

#include "shale/kernels/check.h"
#include "shale/kernels/cpu/loop-inl.h"
#include "shale/kernels/cpu/parallel.h"
#include "shale/kernels/cpu/run.h"
#include "shale/kernels/reduce_dims.h"

// reduce_dims: a thread owns elements of y. If neighbours in y are neighbours in x, the thread
// reduces many elements of y together, with vectors along y. Otherwise it reduces one element after
// another, and uses vectors if the elements of x are contiguous. Partial sums of at most kBlock
// additions in f32 are added up in a second sum.

HWY_BEFORE_NAMESPACE();
namespace shale::kernels::HWY_NAMESPACE {

inline constexpr int64_t kBlock = 1024;   // additions per partial sum
inline constexpr int64_t kColumns = 256;  // elements of y that are reduced together
inline constexpr int64_t kReduceGrain = 16384;

// Returns the offset, in elements, of the element that iteration number `step` of a walk visits.
int64_t offset_in(const Walk& walk, int64_t step) {
  int64_t offset = 0;
  for (int d = walk.count; d-- > 0;) {
    offset += step % walk.size[size_t(d)] * walk.stride[size_t(d)];
    step /= walk.size[size_t(d)];
  }
  return offset;
}

// Calls fn(offset) for each run of a walk. A run is all steps of the innermost dimension; `offset`
// is that of its first element.
template <class Fn>
void for_runs(const Walk& walk, const Fn& fn) {
  Walk outer = walk;
  --outer.count;
  const int64_t runs = outer.steps();
  for (int64_t run = 0; run < runs; ++run) fn(offset_in(outer, run));
}

struct SumOp {
  static constexpr float kFirst = 0;
  static HWY_INLINE float join(float a, float b) { return a + b; }
  static HWY_INLINE F32Vec join(F32Vec a, F32Vec b) { return hn::Add(a, b); }
};
// Keeps a NaN: the comparison a != a is true only for NaN.
struct MaxOp {
  static constexpr float kFirst = -std::numeric_limits<float>::infinity();
  static HWY_INLINE float join(float a, float b) { return a >= b || a != a ? a : b; }
  static HWY_INLINE F32Vec join(F32Vec a, F32Vec b) {
    return hn::IfThenElse(hn::Or(hn::Ge(a, b), hn::IsNaN(a)), a, b);
  }
};
struct MinOp {
  static constexpr float kFirst = std::numeric_limits<float>::infinity();
  static HWY_INLINE float join(float a, float b) { return a <= b || a != a ? a : b; }
  static HWY_INLINE F32Vec join(F32Vec a, F32Vec b) {
    return hn::IfThenElse(hn::Or(hn::Le(a, b), hn::IsNaN(a)), a, b);
  }
};

// Combines the lanes of a vector in order.
template <class Op>
HWY_INLINE float join_lanes(F32Vec v) {
  HWY_ALIGN float lanes[kF32Lanes];
  store(v, F32Tag(), lanes);
  float total = lanes[0];
  for (int64_t i = 1; i < kF32Lanes; ++i) total = Op::join(total, lanes[i]);
  return total;
}

// Reduces n elements at x, n <= kBlock.
template <class Op, typename T>
HWY_INLINE float reduce_dense(const T* x, int64_t n) {
  F32Vec turns[kTurns];
  for (F32Vec& turn : turns) turn = hn::Set(F32Tag(), Op::kFirst);
  int64_t i = 0;
  for (; i + kTurns * kF32Lanes <= n; i += kTurns * kF32Lanes) {
    for (int k = 0; k < kTurns; ++k) {
      turns[k] = Op::join(turns[k], load(F32Tag(), x + i + k * kF32Lanes));
    }
  }
  for (; i + kF32Lanes <= n; i += kF32Lanes) turns[0] = Op::join(turns[0], load(F32Tag(), x + i));
  float total =
      join_lanes<Op>(Op::join(Op::join(turns[0], turns[1]), Op::join(turns[2], turns[3])));
  for (; i < n; ++i) total = Op::join(total, to_f32(x[i]));
  return total;
}

template <class Op, typename T>
float reduce_strided(const T* x, int64_t n, int64_t stride) {
  float total = Op::kFirst;
  for (int64_t i = 0; i < n; ++i) total = Op::join(total, to_f32(x[i * stride]));
  return total;
}

template <class Op, typename T>
float reduce_one(const T* x, const Walk& walk) {
  const auto inner = size_t(walk.count - 1);
  const int64_t length = walk.size[inner], stride = walk.stride[inner];
  float total = Op::kFirst;
  for_runs(walk, [&](int64_t offset) {
    const T* run = x + offset;
    for (int64_t i = 0; i < length; i += kBlock) {
      const int64_t n = std::min(kBlock, length - i);
      const float block = stride == 1 ? reduce_dense<Op>(run + i, n)
                                      : reduce_strided<Op>(run + i * stride, n, stride);
      total = Op::join(total, block);
    }
  });
  return total;
}

// Reduces `columns` neighbouring elements of y together. x points to the first element of x for the
// first of them.
template <class Op, typename T>
void reduce_columns(const T* x, const Walk& walk, int64_t columns, float* total) {
  HWY_ALIGN float sums[kColumns];
  std::fill_n(total, columns, Op::kFirst);
  std::fill_n(sums, columns, Op::kFirst);
  const auto join_into = [columns](float* to, const auto* from) {
    for_vectors(columns, [&](int64_t i, auto part) HWY_ATTR {
      store(Op::join(load(to + i, part), load(from + i, part)), to + i, part);
    });
  };
  const int64_t steps = walk.steps();
  for (int64_t step = 0; step < steps; ++step) {
    join_into(sums, x + offset_in(walk, step));
    if ((step + 1) % kBlock != 0 && step + 1 != steps) continue;
    join_into(total, sums);
    std::fill_n(sums, columns, Op::kFirst);
  }
}

template <class Op, typename T, typename Y>
void reduce_typed(const Exec& exec, const ReduceDimsArgs& a) {
  const ReducePlan plan(a);
  const T* x = a.x.as<T>();
  Y* y = a.y.as<Y>();
  const int64_t outputs = a.y.numel(), each = plan.reduced.steps();
  if (plan.along_kept()) {
    const int64_t row = plan.kept.size[size_t(plan.kept.count - 1)];
    const int64_t tiles = (row + kColumns - 1) / kColumns;
    parallel_for(exec, outputs / std::max<int64_t>(row, 1) * tiles, 1,
                 [&](int64_t begin, int64_t end) {
                   HWY_ALIGN float total[kColumns];
                   for (int64_t tile = begin; tile < end; ++tile) {
                     const int64_t at = tile / tiles * row + tile % tiles * kColumns;
                     const int64_t n = std::min(kColumns, row - tile % tiles * kColumns);
                     reduce_columns<Op>(x + offset_in(plan.kept, at), plan.reduced, n, total);
                     for (int64_t i = 0; i < n; ++i) y[at + i] = Y(total[i] * a.scale);
                   }
                 });
    return;
  }
  const int64_t grain = std::max<int64_t>(1, kReduceGrain / std::max<int64_t>(1, each));
  parallel_for(exec, outputs, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const float total =
          each == 0 ? Op::kFirst : reduce_one<Op>(x + offset_in(plan.kept, i), plan.reduced);
      y[i] = Y(total * a.scale);
    }
  });
}

template <typename T>
void argmax_typed(const Exec& exec, const ReduceDimsArgs& a) {
  const ReducePlan plan(a);
  const T* x = a.x.as<T>();
  int32_t* y = a.y.as<int32_t>();
  const int64_t n = plan.reduced.steps(), stride = plan.reduced.stride[0];
  const int64_t grain = std::max<int64_t>(1, kReduceGrain / n);
  parallel_for(exec, a.y.numel(), grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const T* from = x + offset_in(plan.kept, i);
      int64_t best = 0;
      float largest = to_f32(from[0]);
      for (int64_t k = 1; k < n && largest == largest; ++k) {
        const float value = to_f32(from[k * stride]);
        if (value > largest || value != value) largest = value, best = k;
      }
      y[i] = int32_t(best);
    }
  });
}

void reduce_dims_target(const Exec& exec, const ReduceDimsArgs& a) {
  dispatch_float(a.x.dtype, [&]<typename T>() {
    if (a.op == ReduceOp::kArgMax) return argmax_typed<T>(exec, a);
    dispatch_float(a.y.dtype, [&]<typename Y>() {
      switch (a.op) {
        case ReduceOp::kMax: return reduce_typed<MaxOp, T, Y>(exec, a);
        case ReduceOp::kMin: return reduce_typed<MinOp, T, Y>(exec, a);
        default: return reduce_typed<SumOp, T, Y>(exec, a);
      }
    });
  });
}

}  // namespace shale::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shale::kernels {
HWY_EXPORT(reduce_dims_target);

template <>
void cpu::run(const Exec& exec, const ReduceDimsArgs& a) {
  if (a.y.numel() == 0) return;
  HWY_DYNAMIC_DISPATCH(reduce_dims_target)(exec, a);
}

}  // namespace shale::kernels
#endif
