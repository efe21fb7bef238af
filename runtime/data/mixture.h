#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace shale {

// In which order samples of several sources follow each other: as evenly as their weights allow, so
// that in any number of samples each source has its share to within half as many samples as there
// are sources. A pure function of the position, without a table of samples (compare the greedy rule
// of Megatron-LM, megatron/core/datasets/helpers.cpp, which must be run from the start).
//
// Sample k of a source of weight w has the time (k + 1/2) / w; samples are in the order of their
// times, equal ones in the order of the sources.
class Mixture {
 public:
  // Weights need not add up to 1; they are kept to 2^-31 of their sum, and the heaviest takes what
  // that leaves. Throws ConfigError unless all are finite and above 0, and there are 1 to 65536.
  explicit Mixture(std::span<const double> weights);

  struct Draw {
    int64_t source = 0;
    int64_t index = 0;  // which sample of that source, counted from 0
  };
  // position: at least 0. Takes time in proportion to the number of sources.
  Draw draw(int64_t position) const;

  int64_t sources() const { return static_cast<int64_t>(counts_.size()); }
  double share(int64_t source) const;  // of all samples
  uint64_t fingerprint() const;        // of all shares, which decide the order of samples

 private:
  std::vector<uint64_t> counts_;  // samples of each source in a period
};

}  // namespace shale
