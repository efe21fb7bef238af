#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "shale/kernels/cpu/dropout.cpp"
#include <hwy/foreach_target.h>
//
#include <algorithm>

#include "shale/kernels/check.h"
#include "shale/kernels/cpu/loop-inl.h"
#include "shale/kernels/cpu/parallel.h"
#include "shale/kernels/cpu/philox-inl.h"
#include "shale/kernels/cpu/run.h"
#include "shale/kernels/elementwise.h"

// Dropout. A thread owns blocks of elements of one sample. The random words of a block are written
// to a buffer that stays in the L1 cache, then used. A block begins at a multiple of four, the
// number of words per counter.

HWY_BEFORE_NAMESPACE();
namespace shale::kernels::HWY_NAMESPACE {

inline constexpr int64_t kDropoutBlock = 1024;

struct DropoutFactors {
  float p, scale;
};

template <typename T>
void dropout_span(const DropoutFactors& f, const uint32_t* words, const T* x, const T* residual,
                  T* y, int64_t n) {
  const F32Tag d;
  const hn::RebindToUnsigned<F32Tag> du;
  const hn::RebindToSigned<F32Tag> di;
  const auto p = hn::Set(d, f.p), scale = hn::Set(d, f.scale), unit = hn::Set(d, 0x1p-24f);
  for_vectors(n, [&](int64_t i, auto part) HWY_ATTR {
    // The words have padding at their end, so whole vectors may be read.
    const auto bits = hn::ShiftRight<8>(hn::LoadU(du, words + i));
    const auto uniform = hn::Mul(hn::ConvertTo(d, hn::BitCast(di, bits)), unit);
    const auto scaled = hn::Mul(load(x + i, part), scale);
    auto out = hn::IfThenElseZero(hn::Ge(uniform, p), scaled);
    if (residual != nullptr) out = hn::Add(out, load(residual + i, part));
    store(out, y + i, part);
  });
}

template <typename T>
void dropout_typed(const Exec& exec, const DropoutArgs& a) {
  const StepState& step = *exec.step;
  const int64_t elements = a.sample_elements > 0 ? a.sample_elements : a.x.numel() / a.x.size(0);
  const int64_t blocks = (elements + kDropoutBlock - 1) / kDropoutBlock;  // blocks per sample
  const int64_t last = a.first + a.x.numel();
  const int64_t first_sample = a.first / elements;
  const int64_t samples = (last + elements - 1) / elements - first_sample;
  const T* x = a.x.as<T>();
  const T* residual = a.residual.defined() ? a.residual.as<T>() : nullptr;
  T* y = a.y.as<T>();
  const DropoutFactors factors = {.p = a.p, .scale = 1.f / (1.f - a.p)};
  const PhiloxKey key = rng_key(step.seed, RngDomain::kDropout);
  parallel_for(exec, samples * blocks, 8, [&](int64_t begin, int64_t end) {
    HWY_ALIGN uint32_t words[kDropoutBlock + kF32Lanes];
    for (int64_t b = begin; b < end; ++b) {
      const int64_t sample = first_sample + b / blocks, begin_of_sample = sample * elements;
      const int64_t block = b % blocks * kDropoutBlock;
      // The part of the block that is in x: its first element, as a position in the sample, and the
      // number of elements.
      const int64_t first = std::max(block, a.first - begin_of_sample);
      const int64_t n = std::min({block + kDropoutBlock, elements, last - begin_of_sample}) - first;
      if (n <= 0) continue;
      const auto global_sample = step.sample + static_cast<uint64_t>(sample);
      philox_words({static_cast<uint32_t>(first / 4), a.site, static_cast<uint32_t>(global_sample),
                    static_cast<uint32_t>(step.step)},
                   key, (n + 3) / 4, words);
      const int64_t at = begin_of_sample + first - a.first;
      dropout_span(factors, words, x + at, residual != nullptr ? residual + at : nullptr, y + at,
                   n);
    }
  });
}

void dropout_target(const Exec& exec, const DropoutArgs& a) {
  dispatch_float(a.x.dtype, [&]<typename T>() { dropout_typed<T>(exec, a); });
}

}  // namespace shale::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shale::kernels {
HWY_EXPORT(dropout_target);

template <>
void cpu::run(const Exec& exec, const DropoutArgs& a) {
  step_of("dropout", exec);
  if (a.x.numel() == 0) return;
  HWY_DYNAMIC_DISPATCH(dropout_target)(exec, a);
}

}  // namespace shale::kernels
#endif
