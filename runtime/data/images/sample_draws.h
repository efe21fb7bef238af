#pragma once

#include <cstdint>

#include "shale/base/rng.h"

namespace shale {

// Random numbers of one training sample. Each purpose has its own indices. A number depends only on
// seed, position and index, not on the caller or the order of draws.
class SampleDraws {
 public:
  SampleDraws(uint64_t seed, int64_t position)
      : key_(rng_key(seed ^ hash_name("augmentation"), RngDomain::kSampling)),
        position_(static_cast<uint64_t>(position)) {}

  // Returns number `what`, uniform in [0, 1).
  float number(uint32_t what) const {
    const PhiloxCounter words = philox(
        {static_cast<uint32_t>(position_), static_cast<uint32_t>(position_ >> 32), what / 4, 0},
        key_);
    return uniform_f32(words[what % 4]);
  }
  // Returns number `what` as an integer, uniform in 0 to count - 1.
  int64_t below(uint32_t what, int64_t count) const {
    return static_cast<int64_t>(double{number(what)} * static_cast<double>(count));
  }

 private:
  PhiloxKey key_;
  uint64_t position_;
};

// First index of the numbers for each purpose.
enum SampleDraw : uint32_t {
  kDrawCrop = 0,
  kDrawChanges = 64,
  kDrawErase = 256,
  kDrawMix = 512,  // must be last, because mixing may draw any number of times
};

}  // namespace shale
