#pragma once

#include <algorithm>
#include <bit>
#include <limits>

#include "shale/kernels/cuda/attention/attention90_exp2.cuh"
#include "shale/kernels/simt/simt.h"
#include "shale/kernels/simt/softmax.h"

// Softmax of Hopper's forward attention, over scores that arrive tile by tile.
namespace shale::kernels::SHALE_BACKEND {

struct MaxOrNan {
  __device__ __forceinline__ float operator()(float a, float b) const { return max_or_nan(a, b); }
};

// Online softmax, in units of log2. A thread has parts of two rows, 8 apart; three neighbouring
// threads have the other columns of these rows. The threads' sums are combined at the end.
//
// A shift is subtracted from the scores of a row. It is an earlier maximum of the row, and changes
// only when a new maximum exceeds it by more than kSlack. So the sums are rarely rescaled. Any
// shift works that keeps powers and sums in range.
class RowSoftmax {
 public:
  // Replaces scores by 2^(scale * scores - shift), and computes every kByFma-th power (0: none) on
  // the FMA pipe. If this returns true, the caller must call rescale() next, otherwise keep(). The
  // result is the same for all lanes of a warp.
  template <int kByFma, int kCount>
  __device__ __forceinline__ bool add(float (&scores)[kCount], float scale, float scale_64th) {
    bool rises = false;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float largest = max_or_nan(scores[2 * half], scores[2 * half + 1]);
#pragma unroll
      for (int i = 4 + 2 * half; i < kCount; i += 4) {
        largest = max_or_nan(largest, max_or_nan(scores[i], scores[i + 1]));
      }
      largest = warp_reduce<4>(largest, MaxOrNan()) * scale;
      const bool exceeds = !(largest <= shift[half] + kSlack);
      raised_[half] = exceeds ? largest : shift[half];
      rises |= exceeds;
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float start = fmaf(raised_[half], -1.f / 64.f, 56.f / 64.f);
      added_[half] = 0.f;
#pragma unroll
      for (int i = 2 * half; i < kCount; i += 4) {
#pragma unroll
        for (int e = i; e < i + 2; ++e) {
          if (kByFma > 0 && e % std::max(kByFma, 1) == 0) {
            scores[e] = exp2_by_fma(fma_saturated(scores[e], scale_64th, start));
          } else {
            scores[e] = fast_exp2(fmaf(scores[e], scale, -raised_[half]));
          }
        }
        added_[half] += scores[i] + scores[i + 1];
      }
    }
    return any(rises);
  }

  __device__ __forceinline__ void keep() {
#pragma unroll
    for (int half = 0; half < 2; ++half) sum[half] += added_[half];
  }
  // Changes to the new maximum. Returns the factor by which the caller must scale its own sums.
  __device__ __forceinline__ void rescale(float (&factor)[2]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      factor[half] = fast_exp2(shift[half] - raised_[half]);
      shift[half] = raised_[half];
      // A score of NaN or infinity makes the whole row NaN.
      sum[half] = fmaf(shift[half], 0.f, fmaf(sum[half], factor[half], added_[half]));
    }
  }
  // Returns a value that depends on the newest powers, as argument for settle().
  __device__ __forceinline__ uint32_t bits() const {
    return std::bit_cast<uint32_t>(added_[0] + added_[1]);
  }

  // Starts with the lowest finite number: in a row that has seen no key, -inf minus -inf would be
  // NaN.
  float shift[2] = {std::numeric_limits<float>::lowest(), std::numeric_limits<float>::lowest()};
  float sum[2] = {0.f, 0.f};

 private:
  static constexpr float kSlack = 8.f;  // in units of log2; bf16 and f16 represent 2^8 exactly

  float raised_[2], added_[2];
};

}  // namespace shale::kernels::SHALE_BACKEND
