#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "shale/runtime/tensor/tensor.h"

namespace shale {

// How positions beyond those of training are reached.
enum class RopeScaling : uint8_t {
  kNone,
  kLinear,  // f / factor (Chen et al., arXiv:2306.15595)
  kLlama3,  // long waves by the factor, short ones not, those between blended (Llama 3.1)
  kYarn,    // likewise by rotations within the context of training (Peng et al., arXiv:2309.00071)
};

// Frequencies of rotary positions: f_i = theta^(-2 i / D), then scaled.
struct RopeConfig {
  double theta = 10'000;
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1;             // of the scaling, at least 1
  int64_t original_context = 0;  // kLlama3, kYarn: tokens, of the training before
  double low_freq_factor = 1;    // kLlama3: waves longer than original_context / this are scaled
  double high_freq_factor = 4;   // ... shorter than original_context / this are not
  double beta_fast = 32;         // kYarn: rotations from which on a wave is not scaled
  double beta_slow = 1;          // ... up to which it is
  double attention_factor = 0;   // kYarn: of cos and sin; 0: 0.1 ln(factor) + 1
  bool truncate = true;          // kYarn: the blend begins and ends at whole pairs

  friend bool operator==(const RopeConfig&, const RopeConfig&) = default;
};

// f_i of a head size, in radians a position. Throws ConfigError for sizes that cannot be.
std::vector<double> rope_frequencies(const RopeConfig& config, int64_t head_size);

// What rope() needs of a model, made once.
class RopeTable {
 public:
  // Throws ConfigError as rope_frequencies(), and for a head size that the kernel has not.
  RopeTable(const RopeConfig& config, int64_t head_size);

  const std::vector<uint64_t>& turns() const { return turns_; }
  float scale() const { return scale_; }

 private:
  std::vector<uint64_t> turns_;  // parts of a turn, of 2^-64, that a pair goes by position
  float scale_ = 1;
};

// Where tokens stand, and which elements of a head are a pair.
struct RopeOptions {
  int64_t first_position = 0;
  Tensor positions = {};  // [B, T] i32; without: first_position + t
  bool interleaved =
      false;  // pair i is (2 i, 2 i + 1); else (i, i + D / 2), as Hugging Face has it
};

// Turns each pair of x [B, T, H, D] by position times frequency (kernels/rope.h). Keeps nothing of
// x for backward.
Tensor rope(const Tensor& x, const std::shared_ptr<const RopeTable>& table,
            const RopeOptions& options = {});

}  // namespace shale
