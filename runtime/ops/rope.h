#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "shale/runtime/tensor/tensor.h"

namespace shale {

// Methods that change the frequencies for contexts longer than in training.
enum class RopeScaling : uint8_t {
  kNone,
  kLinear,  // f / factor (Chen et al., arXiv:2306.15595)
  // divides low frequencies by the factor, keeps high frequencies, and interpolates in between
  // (Llama 3.1)
  kLlama3,
  // Like kLlama3, but interpolates by the number of rotations within the original context
  // (arXiv:2309.00071).
  kYarn,
};

// Frequencies of rotary embeddings: f_i = theta^(-2 i / D) for a head size D, then changed by
// `scaling`.
struct RopeConfig {
  double theta = 10'000;
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1;             // factor of the scaling, at least 1
  int64_t original_context = 0;  // kLlama3, kYarn: tokens of the context in the original training
  // kLlama3: frequencies are divided by the factor if their wavelength, in tokens, is above
  // original_context / low_freq_factor
  double low_freq_factor = 1;
  // kLlama3: frequencies are kept if their wavelength is below original_context / high_freq_factor
  double high_freq_factor = 4;
  // kYarn: frequencies with at least this many rotations in original_context are kept
  double beta_fast = 32;
  // kYarn: frequencies with at most this many rotations in original_context are divided by the
  // factor
  double beta_slow = 1;
  double attention_factor = 0;   // kYarn: factor of cos and sin; 0: 0.1 ln(factor) + 1
  bool truncate = true;          // kYarn: rounds the ends of the interpolation range to whole pairs

  friend bool operator==(const RopeConfig&, const RopeConfig&) = default;
};

// Returns the frequencies f_i of RopeConfig, in radians per position. Throws ConfigError for
// invalid sizes.
std::vector<double> rope_frequencies(const RopeConfig& config, int64_t head_size);

// Precomputed table for rope(); make it once per model.
class RopeTable {
 public:
  // Throws ConfigError like rope_frequencies(), and for a head size that the kernel does not
  // support.
  RopeTable(const RopeConfig& config, int64_t head_size);

  const std::vector<uint64_t>& turns() const { return turns_; }
  float scale() const { return scale_; }

 private:
  // rotation of each pair from one position to the next, in units of 2^-64 turns
  std::vector<uint64_t> turns_;
  float scale_ = 1;
};

// Positions of tokens, and pairing of a head's elements.
struct RopeOptions {
  int64_t first_position = 0;
  // [B, T] i32: position of each token; undefined: first_position + t for token t
  Tensor positions = {};
  // true: pair i is elements (2 i, 2 i + 1); false: (i, i + D / 2), as in Hugging Face
  bool interleaved = false;
};

// Rotates each pair of elements of x [B, T, H, D] by position times frequency (kernels/rope.h).
// Keeps nothing of x for backward.
Tensor rope(const Tensor& x, const std::shared_ptr<const RopeTable>& table,
            const RopeOptions& options = {});

}  // namespace shale
