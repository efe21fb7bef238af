#include "shale/base/rng.h"

#include <set>

#include "shale/test/support/catch.h"

namespace shale {

// Known-answer vectors of the Random123 distribution (kat_vectors, philox4x32 10).
TEST_CASE("philox gives the published words", "[rng]") {
  CHECK(philox({0, 0, 0, 0}, {0, 0}) ==
        PhiloxCounter{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u});
  CHECK(philox({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}) ==
        PhiloxCounter{0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu});
  CHECK(philox({0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u}, {0xa4093822u, 0x299f31d0u}) ==
        PhiloxCounter{0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u});
}

TEST_CASE("philox runs at compile time", "[rng]") {
  static_assert(philox({0, 0, 0, 0}, {0, 0})[0] == 0x6627e8d5u);
  CHECK(philox({1, 0, 0, 0}, {0, 0}) != philox({0, 0, 0, 0}, {0, 0}));
}

TEST_CASE("streams of different seed or purpose have different keys", "[rng]") {
  std::set<PhiloxKey> keys;
  size_t pairs = 0;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    for (const RngDomain domain : {RngDomain::kInit, RngDomain::kDropout, RngDomain::kShuffle,
                                   RngDomain::kSampling, RngDomain::kTest}) {
      keys.insert(rng_key(seed, domain));
      keys.insert(rng_key(seed << 32, domain));
      pairs += seed == 0 ? 1 : 2;
    }
  }
  CHECK(keys.size() == pairs);
}

TEST_CASE("uniform_f32 covers [0, 1) without reaching 1", "[rng]") {
  CHECK(uniform_f32(0) == 0.f);
  CHECK(uniform_f32(255) == 0.f);
  CHECK(uniform_f32(256) == 0x1p-24f);
  CHECK(uniform_f32(0x80000000u) == 0.5f);
  CHECK(uniform_f32(~0u) == 1 - 0x1p-24f);
}

TEST_CASE("hash_name is FNV-1a of 64 bits", "[rng]") {
  // Test vectors of draft-eastlake-fnv.
  CHECK(hash_name("") == 0xcbf29ce484222325ull);
  CHECK(hash_name("a") == 0xaf63dc4c8601ec8cull);
  CHECK(hash_name("foobar") == 0x85944171f73967e8ull);
}

}  // namespace shale
