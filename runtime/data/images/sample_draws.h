#pragma once

#include <cstdint>

#include "shale/base/rng.h"

namespace shale {

// Random numbers of one training sample, each by what it is for: functions of seed and position
// alone, whoever draws them, and in whatever order.
class SampleDraws {
 public:
  SampleDraws(uint64_t seed, int64_t position)
      : key_(rng_key(seed ^ hash_name("augmentation"), RngDomain::kSampling)),
        position_(static_cast<uint64_t>(position)) {}

  // In [0, 1).
  float number(uint32_t what) const {
    const PhiloxCounter words = philox(
        {static_cast<uint32_t>(position_), static_cast<uint32_t>(position_ >> 32), what / 4, 0},
        key_);
    return uniform_f32(words[what % 4]);
  }
  // From 0 to count - 1, each as likely.
  int64_t below(uint32_t what, int64_t count) const {
    return static_cast<int64_t>(double{number(what)} * static_cast<double>(count));
  }

 private:
  PhiloxKey key_;
  uint64_t position_;
};

// Where the numbers of each purpose begin.
enum SampleDraw : uint32_t {
  kDrawCrop = 0,
  kDrawChanges = 64,
  kDrawErase = 256,
  kDrawMix = 512,  // the last, and without an end
};

}  // namespace shale
