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

// Counts values by sign, exponent and the two highest bits of the mantissa, four ranges to a power
// of two, so that counts of parts add up to that of the whole. Values that are not finite are
// counted apart.
class ValueCounts {
 public:
  static constexpr int64_t kRanges = 2048;

  void add(std::span<const float> values);

  std::array<int64_t, kRanges> counts{};  // by the highest 11 bits of the value
  double sum = 0;
  double sum_of_squares = 0;
  double least = 0, most = 0;  // of the finite ones, if there are any
  int64_t finite = 0;
};

// Values times `scale` as TensorBoard takes them. Ranges whose values are less than 2^-16 of the
// largest are one around 0, so that there are at most 138.
Histogram histogram_of(const ValueCounts& counts, double scale);

// A parameter's histogram.
struct TensorHistogram {
  std::string name;  // the parameter's
  Histogram histogram;
};
enum class HistogramOf { kParameters, kGradients };
// Of each of `parameters`, which all ranks give alike, over the ranks of `group` that hold its
// parts: of what `shards` have after a step, before the next backward. Collective; the result is
// on all ranks of the group. Copies what lies on a device to the host, a part at a time.
std::vector<TensorHistogram> tensor_histograms(HistogramOf what,
                                               const std::vector<Parameter*>& parameters,
                                               const std::vector<OptimShard>& shards,
                                               comm::ProcessGroup& group, double scale);

}  // namespace shale::models
