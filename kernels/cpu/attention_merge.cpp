#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "shale/kernels/cpu/attention_merge.cpp"
#include <hwy/foreach_target.h>
//
#include <algorithm>
#include <cmath>

#include "shale/kernels/attention_problem.h"
#include "shale/kernels/check.h"
#include "shale/kernels/cpu/loop-inl.h"
#include "shale/kernels/cpu/parallel.h"
#include "shale/kernels/cpu/run.h"

// attention_merge: a thread owns whole rows. A row is one query of one head.

HWY_BEFORE_NAMESPACE();
namespace shale::kernels::HWY_NAMESPACE {

inline constexpr int64_t kMergeGrain = 8192;  // elements per chunk of work

// Computes sum = weight * sum + part_weight * part. If a weight is 0, its operand is not read,
// because it may be NaN.
template <typename T>
void merge_row(float* sum, const T* part, int64_t n, float weight, float part_weight) {
  const F32Tag d;
  const auto of_sum = hn::Set(d, weight), of_part = hn::Set(d, part_weight);
  for_vectors(n, [&](int64_t i, auto count) HWY_ATTR {
    auto y = hn::Zero(d);
    if (weight != 0) y = hn::Mul(load(sum + i, count), of_sum);
    if (part_weight != 0) y = hn::MulAdd(load(part + i, count), of_part, y);
    store(y, sum + i, count);
  });
}

template <typename T>
void merge_rows(const AttentionMergeArgs& a, int64_t begin, int64_t end) {
  const int64_t queries = a.sum.size(1), heads = a.sum.size(2), size = a.sum.size(3);
  const auto at = [](const View& x, int64_t b, int64_t t, int64_t h) {
    return b * x.stride(0) + t * x.stride(1) + h * x.stride(2);
  };
  for (int64_t row = begin; row < end; ++row) {
    const int64_t b = row / heads / queries, t = row / heads % queries, h = row % heads;
    float& lse = a.lse.as<float>()[at(a.lse, b, h, t)];
    const float part_lse = a.part_lse.as<float>()[at(a.part_lse, b, h, t)];
    const MergeWeights weights(
        lse, part_lse, [](float x) { return std::exp(x); }, [](float x) { return std::log(x); });
    lse = weights.lse;
    merge_row(a.sum.as<float>() + at(a.sum, b, t, h), a.part.as<T>() + at(a.part, b, t, h), size,
              weights.sum, weights.part);
  }
}

void attention_merge_target(const Exec& exec, const AttentionMergeArgs& a) {
  const int64_t rows = a.sum.numel() / a.sum.size(3);
  const int64_t grain = std::max<int64_t>(1, kMergeGrain / a.sum.size(3));
  dispatch_float(a.part.dtype, [&]<typename T>() {
    parallel_for(exec, rows, grain,
                 [&](int64_t begin, int64_t end) { merge_rows<T>(a, begin, end); });
  });
}

}  // namespace shale::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shale::kernels {
HWY_EXPORT(attention_merge_target);

template <>
void cpu::run(const Exec& exec, const AttentionMergeArgs& a) {
  if (a.sum.numel() > 0) HWY_DYNAMIC_DISPATCH(attention_merge_target)(exec, a);
}

}  // namespace shale::kernels
#endif
