#pragma once

#include "shale/kernels/cuda/attention/attention_launch.h"
#include "shale/kernels/simt/simt.h"

// Capped scores (AttentionFwdArgs::softcap): what products give becomes what, times the scale, is
// softcap * tanh(scale * score / softcap). Gradients are times the slope, 1 - tanh^2.
namespace shale::kernels::SHALE_BACKEND {

inline constexpr float kTwoLog2E = 2.88539008f;

// tanh(x) = 1 - 2 / (e^2x + 1): within 2^-20, which no 16-bit input notices.
__device__ __forceinline__ float capped(float score, const AttentionParams& p) {
  const float e = fast_exp2(score * (kTwoLog2E * p.cap_in));
  return fmaf(-2.f * p.cap_out, fast_rcp(1.f + e), p.cap_out);
}

// Of a score that is capped.
__device__ __forceinline__ float slope_of(float score, const AttentionParams& p) {
  const float tanh = score * p.cap_in;
  return fmaf(-tanh, tanh, 1.f);
}

// The same of its probability 2^(scale * score - lse2), where the score is not there any more. Of a
// probability that is 0, whatever it multiplies, some number from 0 to 1.
__device__ __forceinline__ float slope_of(float probability, float lse2, const AttentionParams& p) {
  constexpr float kSmallest = 1.17549435e-38f;
  const float tanh = (fast_log2(fmaxf(probability, kSmallest)) + lse2) * p.cap_log2;
  return fmaxf(fmaf(-tanh, tanh, 1.f), 0.f);
}

// dp such that dp - delta is times the slope of a score that is capped.
__device__ __forceinline__ float capped_gradient(float dp, float delta, float slope) {
  return fmaf(dp - delta, slope, delta);
}

template <int kCount>
__device__ __forceinline__ void cap_scores(float (&scores)[kCount], const AttentionParams& p) {
#pragma unroll
  for (float& score : scores) score = capped(score, p);
}

template <int kRowTiles, int kColumnTiles>
__device__ __forceinline__ void cap_scores(float (&scores)[kRowTiles][kColumnTiles][4],
                                           const AttentionParams& p) {
#pragma unroll
  for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
    for (int j = 0; j < kColumnTiles; ++j) cap_scores(scores[i][j], p);
  }
}

}  // namespace shale::kernels::SHALE_BACKEND
