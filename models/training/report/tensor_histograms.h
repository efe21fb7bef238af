#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "shale/comm/process_group.h"
#include "shale/models/training/report/tensorboard.h"
#include "shale/runtime/optim/shard.h"

namespace shale::models {

// Histogram of values by sign, exponent and the two highest bits of the mantissa, i.e. four ranges
// per power of two, so that the counts of parts add up to that of the whole. Non-finite values are
// counted separately.
class ValueCounts {
 public:
  static constexpr int64_t kRanges = 2048;

  void add(std::span<const float> values);

  std::array<int64_t, kRanges> counts{};  // by the highest 11 bits of the value
  double sum = 0;
  double sum_of_squares = 0;
  double least = 0, most = 0;  // of the finite values, if there are any
  int64_t finite = 0;
};

// Returns the histogram of the values times `scale` for TensorBoard. Ranges below 2^-16 of the
// largest magnitude are merged into one around 0, so that there are at most 138.
Histogram histogram_of(const ValueCounts& counts, double scale);

// Histogram of a parameter.
struct TensorHistogram {
  std::string name;  // name of the parameter
  Histogram histogram;
};
enum class HistogramOf { kParameters, kGradients };
// Returns the histograms of `parameters`, which must be equal on all ranks of `group`, computed
// from the ranks' shards after a step and before the next backward. Collective; the result is on
// all ranks of the group. Device memory is copied to the host a part at a time.
std::vector<TensorHistogram> tensor_histograms(HistogramOf what,
                                               const std::vector<Parameter*>& parameters,
                                               const std::vector<OptimShard>& shards,
                                               comm::ProcessGroup& group, double scale);

}  // namespace shale::models
