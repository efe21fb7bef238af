#pragma once

#include "shale/base/rng.h"
#include "shale/base/view.h"
#include "shale/kernels/slot.h"

namespace shale::kernels {

// y[i] = mean + std * normal(seed, stream, first + i). Element e comes from Philox with key
// rng_key(seed, kInit) and counter (e / 4 low, e / 4 high, stream low, stream high). By Box-Muller,
// words 0 and 1 give the first two of four elements, words 2 and 3 the last two. From words (a, b),
// the first element is r cos t and the second r sin t, with r = sqrt(-2 ln(1 - uniform_f32(a))) and
// t = 2 pi uniform_f32(b).
//
// The value of an element does not depend on the range that is filled, so shards can be initialised
// independently. If `run` is not 0, y is a submatrix of the parameter: y[i] is element first + i /
// run * stride + i % run.
struct RandomNormalArgs {
  View y;  // contiguous f32, bf16 or f16
  uint64_t seed = 0;
  uint64_t stream = 0;  // hash_name of the parameter's name
  int64_t first = 0;    // index of y[0] in the whole parameter
  int64_t run = 0;      // elements in a row of the submatrix; 0: y is one row
  int64_t stride = 0;   // distance between rows of the submatrix in the whole parameter
  float mean = 0;
  float std = 1;
  // instead of normal numbers: y[i] = mean + std * uniform_f32(word e % 4 of its counter)
  bool uniform = false;
};

void check_args(const RandomNormalArgs& a);

inline Slot<RandomNormalArgs> random_normal{"random_normal"};

}  // namespace shale::kernels
