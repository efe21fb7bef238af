#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "shale/kernels/cpu/moe.cpp"
#include <hwy/foreach_target.h>
//
#include <algorithm>

#include "shale/kernels/check.h"
#include "shale/kernels/cpu/loop-inl.h"
#include "shale/kernels/cpu/parallel.h"
#include "shale/kernels/cpu/run.h"
#include "shale/kernels/moe.h"

// Permuting and combining rows of tokens. A thread owns rows of the result.
//
// N, k, R, C: tokens, experts per token, total rows of all experts, width.

HWY_BEFORE_NAMESPACE();
namespace shale::kernels::HWY_NAMESPACE {

constexpr int64_t kRows = 16;  // rows per chunk of work

template <typename T>
void permute_typed(const Exec& exec, const MoePermuteArgs& a) {
  const int64_t C = a.x.size(1);
  const int32_t* sources = a.sources.as<int32_t>();
  const float* weights = a.weights.defined() ? a.weights.as<float>() : nullptr;
  const T* x = a.x.as<T>();
  T* y = a.y.as<T>();
  parallel_for(exec, a.sources.numel(), kRows, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t source = sources[r];
      if (source < 0) {
        std::fill_n(y + r * C, C, T{});
        continue;
      }
      const T* from = x + source / a.active * C;
      if (weights == nullptr) {
        std::copy_n(from, C, y + r * C);
        continue;
      }
      const float weight = weights[source];
      for_vectors(C, [&](int64_t i, auto part) HWY_ATTR {
        store(hn::Mul(load(from + i, part), hn::Set(F32Tag(), weight)), y + r * C + i, part);
      });
    }
  });
}

template <typename T>
void combine_typed(const Exec& exec, const MoeCombineArgs& a) {
  const int64_t C = a.x.size(1), k = a.rows.size(1);
  const int32_t* rows = a.rows.as<int32_t>();
  const float* weights = a.weights.defined() ? a.weights.as<float>() : nullptr;
  const T* residual = a.residual.defined() ? a.residual.as<T>() : nullptr;
  const T* x = a.x.as<T>();
  T* y = a.y.as<T>();
  parallel_for(exec, a.rows.size(0), kRows, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      for_vectors(C, [&](int64_t i, auto part) HWY_ATTR {
        const F32Tag d;
        auto sum = residual != nullptr ? load(residual + n * C + i, part) : hn::Zero(d);
        for (int64_t j = n * k; j < (n + 1) * k; ++j) {
          if (rows[j] < 0) continue;
          const auto value = load(x + rows[j] * C + i, part);
          sum = weights != nullptr ? hn::MulAdd(hn::Set(d, weights[j]), value, sum)
                                   : hn::Add(sum, value);
        }
        store(sum, y + n * C + i, part);
      });
    }
  });
}

template <typename T>
void dots_typed(const Exec& exec, const MoeDotsArgs& a) {
  const int64_t C = a.x.size(1), k = a.rows.size(1);
  const int32_t* rows = a.rows.as<int32_t>();
  const T* x = a.x.as<T>();
  const T* y = a.y.as<T>();
  float* dots = a.dots.as<float>();
  parallel_for(exec, a.rows.size(0), kRows, [&](int64_t begin, int64_t end) HWY_ATTR {
    for (int64_t n = begin; n < end; ++n) {
      for (int64_t j = n * k; j < (n + 1) * k; ++j) {
        TurnSum sum;
        if (rows[j] >= 0) {
          for_vectors_in_turns(C, [&](int64_t i, auto part, auto turn) HWY_ATTR {
            sum.add_product(inside(load(x + n * C + i, part), part),
                            inside(load(y + rows[j] * C + i, part), part), turn);
          });
        }
        dots[j] = sum.total();
      }
    }
  });
}

void permute_target(const Exec& exec, const MoePermuteArgs& a) {
  dispatch_float(a.x.dtype, [&]<typename T>() { permute_typed<T>(exec, a); });
}
void combine_target(const Exec& exec, const MoeCombineArgs& a) {
  dispatch_float(a.x.dtype, [&]<typename T>() { combine_typed<T>(exec, a); });
}
void dots_target(const Exec& exec, const MoeDotsArgs& a) {
  dispatch_float(a.x.dtype, [&]<typename T>() { dots_typed<T>(exec, a); });
}

}  // namespace shale::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shale::kernels {
HWY_EXPORT(permute_target);
HWY_EXPORT(combine_target);
HWY_EXPORT(dots_target);

template <>
void cpu::run(const Exec& exec, const MoePermuteArgs& a) {
  HWY_DYNAMIC_DISPATCH(permute_target)(exec, a);
}
template <>
void cpu::run(const Exec& exec, const MoeCombineArgs& a) {
  HWY_DYNAMIC_DISPATCH(combine_target)(exec, a);
}
template <>
void cpu::run(const Exec& exec, const MoeDotsArgs& a) {
  HWY_DYNAMIC_DISPATCH(dots_target)(exec, a);
}

}  // namespace shale::kernels
#endif
