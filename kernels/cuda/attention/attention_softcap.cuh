#pragma once

#include "shale/kernels/cuda/attention/attention_launch.h"
#include "shale/kernels/simt/simt.h"

// Softcap of scores (AttentionFwdArgs::softcap): replaces a raw score by a value that, times the
// scale, is softcap * tanh(scale * score / softcap). Gradients are multiplied by the derivative,
// which is 1 - tanh^2.
namespace shale::kernels::SHALE_BACKEND {

inline constexpr float kTwoLog2E = 2.88539008f;

// Returns the softcap of a score. tanh(x) = 1 - 2 / (e^2x + 1) has an error within 2^-20, far below
// the precision of 16-bit inputs.
__device__ __forceinline__ float capped(float score, const AttentionParams& p) {
  const float e = fast_exp2(score * (kTwoLog2E * p.cap_in));
  return fmaf(-2.f * p.cap_out, fast_rcp(1.f + e), p.cap_out);
}

// Returns the derivative of the softcap, from the capped score.
__device__ __forceinline__ float slope_of(float score, const AttentionParams& p) {
  const float tanh = score * p.cap_in;
  return fmaf(-tanh, tanh, 1.f);
}

// Returns the derivative of the softcap from the probability 2^(scale * score - lse2), for callers
// that no longer have the score. If the probability is 0, the result is any number from 0 to 1,
// because the caller multiplies it by 0.
__device__ __forceinline__ float slope_of(float probability, float lse2, const AttentionParams& p) {
  constexpr float kSmallest = 1.17549435e-38f;
  const float tanh = (fast_log2(fmaxf(probability, kSmallest)) + lse2) * p.cap_log2;
  return fmaxf(fmaf(-tanh, tanh, 1.f), 0.f);
}

// Returns the number for which (result - delta) = slope * (dp - delta). `slope`: the derivative of
// the softcap.
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
