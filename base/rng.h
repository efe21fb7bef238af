#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace shale {

// Philox4x32-10, a counter-based generator: Salmon et al., "Parallel Random Numbers: As Easy as
// 1, 2, 3", SC'11, section 4.2. The same counter and key give the same four words everywhere.
using PhiloxCounter = std::array<uint32_t, 4>;
using PhiloxKey = std::array<uint32_t, 2>;

constexpr PhiloxCounter philox(PhiloxCounter counter, PhiloxKey key) {
  constexpr uint32_t kMul0 = 0xD2511F53u, kMul1 = 0xCD9E8D57u;
  constexpr uint32_t kWeyl0 = 0x9E3779B9u, kWeyl1 = 0xBB67AE85u;
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{kMul0} * counter[0];
    const uint64_t p1 = uint64_t{kMul1} * counter[2];
    counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(p1),
               static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(p0)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

// Purpose of a stream of random numbers. Streams of different purpose never share a key.
enum class RngDomain : uint32_t {
  kInit = 1,
  kDropout = 2,
  kShuffle = 3,
  kSampling = 4,
  kTest = 5,
  kRounding = 6
};

constexpr PhiloxKey rng_key(uint64_t seed, RngDomain domain) {
  // One Philox call mixes seed and domain, so that no two (seed, domain) pairs are related.
  const PhiloxCounter mixed =
      philox({static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32),
              static_cast<uint32_t>(domain), 0x5ba1eu},
             {0, 0});
  return {mixed[0], mixed[1]};
}

// Uniform in [0, 1), a multiple of 2^-24.
constexpr float uniform_f32(uint32_t word) {
  return static_cast<float>(word >> 8) * 0x1p-24f;
}

// FNV-1a hash, 64 bits, which turns names into counters.
constexpr uint64_t hash_name(std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325ull;
  for (const char c : name) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3ull;
  return hash;
}

}  // namespace shale
