#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "shale/kernels/cpu/reduce.cpp"
#include <hwy/foreach_target.h>
//
#include <hwy/cache_control.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <vector>

#include "shale/kernels/check.h"
#include "shale/kernels/cpu/loop-inl.h"
#include "shale/kernels/cpu/parallel.h"
#include "shale/kernels/cpu/row_blocks.h"
#include "shale/kernels/cpu/run.h"
#include "shale/kernels/dry_run.h"
#include "shale/kernels/reduce.h"

HWY_BEFORE_NAMESPACE();
namespace shale::kernels::HWY_NAMESPACE {

// ---- column_sum: a thread owns a block of rows, whose column sums stay in cache ----

template <typename T>
void column_sum_typed(const Exec& exec, const ColumnSumArgs& a) {
  const int64_t rows = a.x.size(0), cols = a.x.size(1), stride = a.x.stride(0);
  const RowBlocks blocks(rows);
  float* partial = scratch<float>("column_sum", exec, blocks.count * cols);
  const T* x = a.x.as<T>();
  parallel_for(exec, rows, blocks.rows, [&](int64_t begin, int64_t end) {
    float* mine = partial + begin / blocks.rows * cols;
    std::fill_n(mine, cols, 0.f);
    for (int64_t r = begin; r < end; ++r) {
      const T* row = x + r * stride;
      for_vectors(cols, [&](int64_t i, auto part) HWY_ATTR {
        store(hn::Add(load(mine + i, part), load(row + i, part)), mine + i, part);
      });
    }
  });
  combine_blocks(exec, partial, blocks.count, cols, {.out = a.y, .accumulate = a.accumulate});
}

void column_sum_target(const Exec& exec, const ColumnSumArgs& a) {
  dispatch_float(a.x.dtype, [&]<typename T>() { column_sum_typed<T>(exec, a); });
}

// Adds the blocks' sums. Threads divide the columns; the order over blocks is the same for each
// column.
template <typename T>
void combine_typed(const Exec& exec, const float* partial, int64_t blocks, int64_t stride,
                   const ColumnSums& sums) {
  constexpr int64_t kColumnGrain = 256;
  T* const all = sums.out.as<T>();
  parallel_for(exec, sums.out.numel(), kColumnGrain, [&](int64_t begin, int64_t end) {
    for_vectors(end - begin, [&](int64_t i, auto part) HWY_ATTR {
      auto total = hn::Zero(F32Tag());
      for (int64_t block = 0; block < blocks; ++block) {
        total = hn::Add(total, load(partial + block * stride + begin + i, part));
      }
      T* out = all + begin + i;
      store(sums.accumulate ? hn::Add(load(out, part), total) : total, out, part);
    });
  });
}

void combine_target(const Exec& exec, const float* partial, int64_t blocks, int64_t stride,
                    const ColumnSums& sums) {
  dispatch_gradient(sums.out.dtype,
                    [&]<typename T>() { combine_typed<T>(exec, partial, blocks, stride, sums); });
}

// ---- sum_squares: eight f64 lanes for any vector width, so bits agree everywhere ----

// Lane l adds the squares of elements l, l + 8, ... The square of an f32 is exact in f64, so fused
// and separate multiplications agree.
inline constexpr int kSumLanes = 8;
using F64Tag = hn::CappedTag<double, kSumLanes>;
using F32PartTag = hn::Rebind<float, F64Tag>;
inline constexpr int kStep = static_cast<int>(hn::MaxLanes(F64Tag()));
inline constexpr int kVectors = kSumLanes / kStep;

struct LaneSums {
  hn::Vec<F64Tag> lanes[kVectors];

  HWY_INLINE LaneSums() {
    for (auto& vector : lanes) vector = hn::Zero(F64Tag());
  }
  template <typename T>
  HWY_INLINE void add(const T* x) {
    for (int k = 0; k < kVectors; ++k) {
      const auto wide = hn::PromoteTo(F64Tag(), load(F32PartTag(), x + k * kStep));
      lanes[k] = hn::MulAdd(wide, wide, lanes[k]);
    }
  }
  HWY_INLINE double total() const {
    HWY_ALIGN double s[kSumLanes];
    for (int k = 0; k < kVectors; ++k) hn::Store(lanes[k], F64Tag(), s + k * kStep);
    return ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
  }
};

// Adds whole blocks, four at a time, to hide the latency of the additions.
template <typename T>
void add_whole_blocks(const T* x, int64_t blocks, FixedSum& sum) {
  int64_t b = 0;
  for (; b + 4 <= blocks; b += 4) {
    LaneSums sums[4];
    for (int64_t i = 0; i < kNormBlock; i += kSumLanes) {
      for (int64_t k = 0; k < 4; ++k) {
        const T* from = x + (b + k) * kNormBlock + i;
        // A prefetch helps because the hardware prefetcher restarts at every page, and a block of
        // f32 is a page.
        hwy::Prefetch(from + 4 * kNormBlock);
        sums[k].add(from);
      }
    }
    for (const LaneSums& block : sums) sum.add(block.total());
  }
  for (; b < blocks; ++b) {
    LaneSums block;
    for (int64_t i = 0; i < kNormBlock; i += kSumLanes) block.add(x + b * kNormBlock + i);
    sum.add(block.total());
  }
}

// Adds the short last block. Missing elements count as zeros.
template <typename T>
void add_short_block(const T* x, int64_t n, FixedSum& sum) {
  LaneSums block;
  int64_t i = 0;
  for (; i + kSumLanes <= n; i += kSumLanes) block.add(x + i);
  if (i < n) {
    T rest[kSumLanes] = {};
    std::copy(x + i, x + n, rest);
    block.add(rest);
  }
  sum.add(block.total());
}

template <typename T>
void sum_squares_typed(const Exec& exec, const SumSquaresArgs& a) {
  const T* x = a.x.as<T>();
  std::mutex mutex;
  parallel_for(exec, a.x.numel(), 64 * kNormBlock, [&](int64_t begin, int64_t end) {
    const int64_t blocks = (end - begin) / kNormBlock;
    FixedSum mine;
    add_whole_blocks(x + begin, blocks, mine);
    const int64_t whole = begin + blocks * kNormBlock;
    if (whole < end) add_short_block(x + whole, end - whole, mine);
    const std::lock_guard<std::mutex> lock(mutex);  // the sum does not depend on the order
    a.sum->add(mine);
  });
}

void sum_squares_target(const Exec& exec, const SumSquaresArgs& a) {
  if (a.x.dtype == DType::kBF16) {
    sum_squares_typed<bf16>(exec, a);
  } else {
    sum_squares_typed<float>(exec, a);
  }
}

}  // namespace shale::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shale::kernels {
HWY_EXPORT(column_sum_target);
HWY_EXPORT(combine_target);
HWY_EXPORT(sum_squares_target);
namespace {

// Sums the values by a binary tree: adds neighbours, then neighbouring pairs, and so on; an element
// without a neighbour moves up unchanged. Overwrites `values`.
double sum_of_tree(std::vector<double>& values) {
  if (values.empty()) return 0;
  for (size_t n = values.size(); n > 1; n = (n + 1) / 2) {
    for (size_t i = 0; i < n / 2; ++i) values[i] = values[2 * i] + values[2 * i + 1];
    if (n % 2 == 1) values[n / 2] = values[n - 1];
  }
  return values[0];
}

}  // namespace

void combine_blocks(const Exec& exec, const float* partial, int64_t blocks, int64_t stride,
                    const ColumnSums& sums) {
  HWY_DYNAMIC_DISPATCH(combine_target)(exec, partial, blocks, stride, sums);
}

template <>
void cpu::run(const Exec& exec, const ColumnSumArgs& a) {
  HWY_DYNAMIC_DISPATCH(column_sum_target)(exec, a);
}

template <>
void cpu::run(const Exec& exec, const SumArgs& a) {
  if (DryRun::is_on()) return;
  // Chunks of a power of two of elements are whole subtrees, so chunks do not change the result.
  constexpr int64_t kGrain = 4096;
  const int64_t n = a.x.numel();
  const float* x = a.x.as<float>();
  std::vector<double> subtrees(static_cast<size_t>((n + kGrain - 1) / kGrain));
  parallel_for(exec, n, kGrain, [&](int64_t begin, int64_t end) {
    std::vector<double> leaves(x + begin, x + end);
    subtrees[static_cast<size_t>(begin / kGrain)] = sum_of_tree(leaves);
  });
  *a.y.as<float>() = static_cast<float>(a.scale * sum_of_tree(subtrees));
}

template <>
void cpu::run(const Exec& exec, const SumSquaresArgs& a) {
  HWY_DYNAMIC_DISPATCH(sum_squares_target)(exec, a);
}

template <>
void cpu::run(const Exec& exec, const ClipFactorArgs& a) {
  StepState& step = step_of("clip_factor", exec);
  const double unscale = 1.0 / step.loss_scale.value;
  FixedSum total;
  for (int64_t part = 0; part < a.parts; ++part) total.add(a.sum[part]);
  const double norm = double{a.factor} * std::sqrt(total.value()) * unscale;
  const bool finite = std::isfinite(norm);
  const double clip = a.max_norm > 0 ? std::min(1.0, a.max_norm / (norm + 1e-6)) : 1.0;
  step.grad_norm = static_cast<float>(norm);
  step.non_finite = finite ? 0 : 1;
  step.clip_factor = finite ? static_cast<float>(clip * unscale) : 0.f;
}

}  // namespace shale::kernels
#endif
