#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "shale/kernels/cpu/rope.cpp"
#include <hwy/foreach_target.h>
//
#include <cmath>

#include "shale/kernels/check.h"
#include "shale/kernels/cpu/loop-inl.h"
#include "shale/kernels/cpu/parallel.h"
#include "shale/kernels/cpu/run.h"
#include "shale/kernels/rope.h"
#include "shale/kernels/rope_angle.h"

// Rotary position embedding. A thread owns tokens: it computes the sines and cosines of a token,
// then rotates the token's heads.

HWY_BEFORE_NAMESPACE();
namespace shale::kernels::HWY_NAMESPACE {

inline constexpr int64_t kRopePairs = kMaxRopeHeadSize / 2;

// Sines and cosines of a token's pairs, times the scale. The arrays are padded, so that whole
// vectors may be read.
struct RopeToken {
  HWY_ALIGN float cos[kRopePairs + kF32Lanes];
  HWY_ALIGN float sin[kRopePairs + kF32Lanes];
};

// Computes the sines and cosines of angles. An angle of 2^32 would be a full turn.
HWY_INLINE void rope_sin_cos(const uint32_t* angles, int64_t pairs, float scale, float sign,
                             RopeToken& token) {
  using P = RopePolynomial;
  const F32Tag d;
  const hn::RebindToUnsigned<F32Tag> du;
  const hn::RebindToSigned<F32Tag> di;
  const auto of = [&](float value) { return hn::Set(d, value); };
  for (int64_t i = 0; i < pairs; i += kF32Lanes) {
    const auto angle = hn::Load(du, angles + i);
    const auto quarter = hn::ShiftRight<30>(hn::Add(angle, hn::Set(du, 1u << 29)));
    const auto rest = hn::BitCast(di, hn::Sub(angle, hn::ShiftLeft<30>(quarter)));
    const auto x = hn::Mul(hn::ConvertTo(d, rest), of(P::kRadians));
    const auto z = hn::Mul(x, x);
    const auto s = hn::MulAdd(hn::MulAdd(of(P::kSin2), z, of(P::kSin1)), z, of(P::kSin0));
    const auto c = hn::MulAdd(hn::MulAdd(of(P::kCos2), z, of(P::kCos1)), z, of(P::kCos0));
    const auto sine = hn::MulAdd(hn::Mul(x, z), s, x);
    const auto cosine = hn::MulAdd(hn::Mul(z, z), c, hn::MulAdd(of(-0.5f), z, of(1)));
    // An additional quarter turn turns sin into cos, and cos into -sin.
    const auto odd = hn::Ne(hn::And(quarter, hn::Set(du, 1u)), hn::Zero(du));
    // Moves the second bit of `quarter` to bit 31, where it flips the sign of the sine.
    const auto upper = hn::ShiftLeft<30>(hn::And(quarter, hn::Set(du, 2u)));
    const auto lower =
        hn::ShiftLeft<31>(hn::And(hn::Xor(quarter, hn::ShiftRight<1>(quarter)), hn::Set(du, 1u)));
    const auto swap = hn::RebindMask(d, odd);
    const auto sin = hn::Xor(hn::IfThenElse(swap, cosine, sine), hn::BitCast(d, upper));
    const auto cos = hn::Xor(hn::IfThenElse(swap, sine, cosine), hn::BitCast(d, lower));
    hn::Store(hn::Mul(cos, of(scale)), d, token.cos + i);
    hn::Store(hn::Mul(sin, of(scale * sign)), d, token.sin + i);
  }
}

template <typename T>
void rope_halves(const RopeToken& token, const T* x, T* y, int64_t pairs) {
  const F32Tag d;
  for_vectors(pairs, [&](int64_t i, auto part) HWY_ATTR {
    const auto a = load(x + i, part), b = load(x + pairs + i, part);
    const auto cos = hn::LoadU(d, token.cos + i), sin = hn::LoadU(d, token.sin + i);
    store(hn::NegMulAdd(b, sin, hn::Mul(a, cos)), y + i, part);
    store(hn::MulAdd(b, cos, hn::Mul(a, sin)), y + pairs + i, part);
  });
}

template <typename T>
void rope_interleaved(const RopeToken& token, const T* x, T* y, int64_t pairs) {
  for (int64_t i = 0; i < pairs; ++i) {
    const float a = to_f32(x[2 * i]), b = to_f32(x[2 * i + 1]);
    const float cos = token.cos[i], sin = token.sin[i];
    y[2 * i] = static_cast<T>(std::fma(-b, sin, a * cos));
    y[2 * i + 1] = static_cast<T>(std::fma(b, cos, a * sin));
  }
}

template <typename T>
void rope_typed(const Exec& exec, const RopeArgs& a) {
  const int64_t length = a.x.size(1), heads = a.x.size(2), pairs = a.x.size(3) / 2;
  const auto& xs = a.x.strides;
  const auto& ys = a.y.strides;
  const int32_t* positions = a.positions.defined() ? a.positions.as<int32_t>() : nullptr;
  parallel_for(exec, a.x.size(0) * length, 16, [&](int64_t begin, int64_t end) {
    HWY_ALIGN uint32_t angles[kRopePairs + kF32Lanes] = {};
    RopeToken token;
    for (int64_t row = begin; row < end; ++row) {
      const int64_t b = row / length, t = row % length;
      const auto position =
          static_cast<uint64_t>(positions != nullptr ? positions[row] : a.first_position + t);
      for (int64_t i = 0; i < pairs; ++i) angles[i] = rope_angle(position, a.turns[i]);
      rope_sin_cos(angles, pairs, a.scale, a.inverse ? -1.f : 1.f, token);
      const T* x = a.x.as<T>() + b * xs[0] + t * xs[1];
      T* y = a.y.as<T>() + b * ys[0] + t * ys[1];
      for (int64_t h = 0; h < heads; ++h) {
        const T* from = x + h * xs[2];
        T* to = y + h * ys[2];
        if (a.interleaved) {
          rope_interleaved(token, from, to, pairs);
        } else {
          rope_halves(token, from, to, pairs);
        }
      }
    }
  });
}

void rope_target(const Exec& exec, const RopeArgs& a) {
  dispatch_float(a.x.dtype, [&]<typename T>() { rope_typed<T>(exec, a); });
}

}  // namespace shale::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shale::kernels {
HWY_EXPORT(rope_target);

template <>
void cpu::run(const Exec& exec, const RopeArgs& a) {
  if (a.x.numel() == 0) return;
  HWY_DYNAMIC_DISPATCH(rope_target)(exec, a);
}

}  // namespace shale::kernels
#endif
