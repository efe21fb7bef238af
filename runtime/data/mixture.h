#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace shale {

// Interleaves the samples of several sources as evenly as their weights allow. Among the first n
// samples, for any n, the number from each source differs from its exact share by at most half the
// number of sources. The source of a sample is a pure function of the position and needs no table.
// (Megatron-LM's greedy rule, megatron/core/datasets/helpers.cpp, must be run from the start.)
//
// Sample k of a source of weight w has the time (k + 1/2) / w. Samples are sorted by their times;
// at equal times, by source.
class Mixture {
 public:
  // Weights need not sum to 1. They are divided by their sum and rounded to multiples of 2^-31; the
  // heaviest source gets the remainder. Throws ConfigError unless all are finite and positive, and
  // there are 1 to 65536 of them.
  explicit Mixture(std::span<const double> weights);

  struct Draw {
    int64_t source = 0;
    int64_t index = 0;  // index of the sample within its source, from 0
  };
  // Returns the source of the sample at `position` (0 or more), and its index there. Takes time
  // proportional to the number of sources.
  Draw draw(int64_t position) const;

  int64_t sources() const { return static_cast<int64_t>(counts_.size()); }
  double share(int64_t source) const;  // fraction of all samples that come from this source
  uint64_t fingerprint() const;  // fingerprint of all weights, which determine the order of samples

 private:
  std::vector<uint64_t> counts_;  // number of samples of each source in a period
};

}  // namespace shale
