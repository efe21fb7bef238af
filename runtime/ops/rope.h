#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "shale/runtime/tensor/tensor.h"

namespace shale {

// Methods for contexts longer than in training.
enum class RopeScaling : uint8_t {
  kNone,
  kLinear,  // f / factor (Chen et al., arXiv:2306.15595)
  kLlama3,  // scales long waves by the factor, keeps short ones, interpolates between (Llama 3.1)
  // Like kLlama3, but by the number of rotations within the original context (arXiv:2309.00071).
  kYarn,
};

// Frequencies of rotary embeddings: f_i = theta^(-2 i / D), then scaled.
struct RopeConfig {
  double theta = 10'000;
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1;             // factor of the scaling, at least 1
  int64_t original_context = 0;  // kLlama3, kYarn: context in tokens of the original training
  double low_freq_factor = 1;    // kLlama3: scales waves over original_context / low_freq_factor
  double high_freq_factor = 4;   // kLlama3: keeps waves below original_context / high_freq_factor
  double beta_fast = 32;         // kYarn: waves with at least this many rotations are not scaled
  double beta_slow = 1;          // kYarn: waves with at most this many rotations are scaled
  double attention_factor = 0;   // kYarn: factor of cos and sin; 0: 0.1 ln(factor) + 1
  bool truncate = true;          // kYarn: round the ends of the interpolation to whole pairs

  friend bool operator==(const RopeConfig&, const RopeConfig&) = default;
};

// Returns the f_i of RopeConfig, in radians per position. Throws ConfigError for invalid sizes.
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
  std::vector<uint64_t> turns_;  // rotation of each pair per position, in units of 2^-64 turns
  float scale_ = 1;
};

// Positions of tokens, and pairing of a head's elements.
struct RopeOptions {
  int64_t first_position = 0;
  Tensor positions = {};     // [B, T] i32; undefined: first_position + t for token t
  bool interleaved = false;  // pair i is (2 i, 2 i + 1); else (i, i + D / 2), as in Hugging Face
};

// Rotates each pair of elements of x [B, T, H, D] by position times frequency (kernels/rope.h).
// Keeps nothing of x for backward.
Tensor rope(const Tensor& x, const std::shared_ptr<const RopeTable>& table,
            const RopeOptions& options = {});

}  // namespace shale
