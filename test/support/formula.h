#pragma once

#include <cstdint>
#include <string_view>

#include "shale/base/rng.h"

namespace shale::test {

// The numbers of test/fixtures/make_gpt2.py: each name has its own stream of random numbers.
// Fixtures and tests compute weights and inputs from it, so these need not be stored.
class Formula {
 public:
  Formula(std::string_view name, uint32_t seed) : hash_(hash_name(name)), seed_(seed) {}
  uint32_t word(int64_t e) const {
    const auto group = static_cast<uint64_t>(e / 4);
    return philox({uint32_t(group), uint32_t(group >> 32), uint32_t(hash_), uint32_t(hash_ >> 32)},
                  {seed_, 0})[size_t(e % 4)];
  }
  float value(int64_t e, float base, float scale) const {
    return base + scale * (uniform_f32(word(e)) - 0.5f);
  }

 private:
  uint64_t hash_;
  uint32_t seed_;
};

}  // namespace shale::test
