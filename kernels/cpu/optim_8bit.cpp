#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "shale/kernels/cpu/optim_8bit.cpp"
#include <hwy/foreach_target.h>
//
#include <cstring>

#include "shale/kernels/check.h"
#include "shale/kernels/cpu/adamw-inl.h"
#include "shale/kernels/cpu/parallel.h"
#include "shale/kernels/cpu/run.h"
#include "shale/kernels/dynamic_lookup.h"
#include "shale/kernels/optim.h"

// AdamW with 8-bit moments processes one block of kMomentBlock elements at a time: the block's
// moments are computed in f32 on the stack, which gives their scales, and are rounded from there.
// Memory is read and written once.

HWY_BEFORE_NAMESPACE();
namespace shale::kernels::HWY_NAMESPACE {

using CodeTag = hn::Rebind<uint8_t, F32Tag>;
using IndexTag = hn::RebindToSigned<F32Tag>;

static_assert(kMomentBlock % kF32Lanes == 0 && kOptimGrain % kMomentBlock == 0);

// The elements of a block in one of the two moments, as codes and in f32.
struct BlockMoments {
  HWY_ALIGN uint8_t codes[kMomentBlock];
  HWY_ALIGN float values[kMomentBlock];
  float largest = 0;

  HWY_INLINE void read(const uint8_t* from, int64_t count) {
    if (count < kMomentBlock) std::memset(codes, 0, sizeof(codes));
    std::memcpy(codes, from, static_cast<size_t>(count));
  }
  HWY_INLINE F32Vec level(const DynamicMap& map, int64_t i) const {
    const auto index = hn::PromoteTo(IndexTag(), hn::Load(CodeTag(), codes + i));
    return hn::GatherIndex(F32Tag(), map.levels.data(), index);
  }
  // Rounds `values` to `count` codes and writes the codes and their scale.
  template <bool kSigned>
  HWY_INLINE void write(const DynamicLookup& lookup, uint8_t* to, float* scale, int64_t count);
};

// Returns the index of the level nearest to each magnitude, which is in [0, 1]. Level 0 is the
// number 0.
HWY_INLINE hn::Vec<IndexTag> nearest_level(const DynamicLookup& lookup, F32Vec magnitude) {
  const IndexTag di;
  const auto upper = hn::ShiftRight<16>(hn::BitCast(di, magnitude));
  // For a NaN the cell must not be outside of the table. The result does not matter then, because
  // the parameter has become NaN already.
  const auto first = hn::Set(di, DynamicLookup::kFirstCell);
  const auto last = hn::Set(di, DynamicLookup::kLastCell - DynamicLookup::kFirstCell);
  const auto cell = hn::Min(hn::Max(hn::Sub(upper, first), hn::Zero(di)), last);
  const auto level = hn::GatherIndex(di, lookup.level_at.data(), cell);
  const auto boundary = hn::GatherIndex(F32Tag(), lookup.boundary.data(), level);
  const auto next = hn::RebindMask(di, hn::Ge(magnitude, boundary));
  return hn::Add(level, hn::IfThenElseZero(next, hn::Set(di, 1)));
}

template <bool kSigned>
HWY_INLINE void BlockMoments::write(const DynamicLookup& lookup, uint8_t* to, float* scale,
                                    int64_t count) {
  const F32Tag d;
  const IndexTag di;
  *scale = largest >= kSmallestScale ? largest : 0.f;
  const auto inverse = hn::Set(d, *scale > 0 ? 1.f / *scale : 0.f);
  const auto zero = hn::Set(di, kSigned ? kSignedMap.zero : 0);
  for (int64_t i = 0; i < count; i += kF32Lanes) {
    const auto value = hn::Load(d, values + i);
    const auto level = nearest_level(lookup, hn::Mul(hn::Abs(value), inverse));
    auto code = level;
    if constexpr (kSigned) {
      const auto negative = hn::RebindMask(di, hn::Lt(value, hn::Zero(d)));
      // the map has 1 but not -1, so Min() clamps
      const auto below = hn::Sub(zero, hn::Min(level, zero));
      code = hn::IfThenElse(negative, below, hn::Add(zero, level));
    } else {
      const auto positive = hn::RebindMask(di, hn::Gt(value, hn::Zero(d)));
      code = hn::IfThenElse(positive, hn::Max(level, hn::Set(di, 1)), level);
    }
    hn::Store(hn::DemoteTo(CodeTag(), code), CodeTag(), codes + i);
  }
  std::memcpy(to, codes, static_cast<size_t>(count));
}

template <typename Grad, typename Param>
struct Block8 {
  OptimSpanView<Grad, Param> span;
  uint8_t *m, *v;
  float *m_scale, *v_scale;
  int64_t count;
};

template <typename Grad, typename Param>
void adamw_8bit_block(const AdamWFactors& f, const Block8<Grad, Param>& b) {
  const F32Tag d;
  const AdamWStep step(f);
  BlockMoments m, v;
  m.read(b.m, b.count);
  v.read(b.v, b.count);
  const auto m_scale = hn::Set(d, *b.m_scale), v_scale = hn::Set(d, *b.v_scale);
  auto m_largest = hn::Zero(d), v_largest = hn::Zero(d);
  for_vectors(b.count, [&](int64_t i, auto part) HWY_ATTR {
    auto new_m = hn::Mul(m_scale, m.level(kSignedMap, i));
    auto new_v = hn::Mul(v_scale, v.level(kUnsignedMap, i));
    const auto w = load(b.span.master + i, part), grad = load(b.span.grad + i, part);
    store_weights(step(w, grad, new_m, new_v), b.span, i, part);
    new_m = inside(new_m, part), new_v = inside(new_v, part);
    hn::Store(new_m, d, m.values + i);
    hn::Store(new_v, d, v.values + i);
    m_largest = hn::Max(m_largest, hn::Abs(new_m));
    v_largest = hn::Max(v_largest, new_v);
  });
  m.largest = max_lanes(d, m_largest);
  v.largest = max_lanes(d, v_largest);
  m.write<true>(kSignedLookup, b.m, b.m_scale, b.count);
  v.write<false>(kUnsignedLookup, b.v, b.v_scale, b.count);
}

template <typename Grad, typename Param>
void adamw_8bit_typed(const Exec& exec, const AdamW8bitArgs& a) {
  const AdamWFactors f(*exec.step, a);
  const OptimSpanView<Grad, Param> span(a);
  parallel_for(exec, a.master.numel(), kOptimGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i += kMomentBlock) {
      adamw_8bit_block<Grad, Param>(f, {.span = span.from(i),
                                        .m = a.m.as<uint8_t>() + i,
                                        .v = a.v.as<uint8_t>() + i,
                                        .m_scale = a.m_scale.as<float>() + i / kMomentBlock,
                                        .v_scale = a.v_scale.as<float>() + i / kMomentBlock,
                                        .count = std::min(kMomentBlock, end - i)});
    }
  });
}

void adamw_8bit_target(const Exec& exec, const AdamW8bitArgs& a) {
  dispatch_optim(a.grad, a.param,
                 [&]<typename Grad, typename Param>() { adamw_8bit_typed<Grad, Param>(exec, a); });
}

}  // namespace shale::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shale::kernels {
HWY_EXPORT(adamw_8bit_target);

template <>
void cpu::run(const Exec& exec, const AdamW8bitArgs& a) {
  if (step_of("adamw_8bit", exec).non_finite != 0) return;
  HWY_DYNAMIC_DISPATCH(adamw_8bit_target)(exec, a);
}

}  // namespace shale::kernels
#endif
