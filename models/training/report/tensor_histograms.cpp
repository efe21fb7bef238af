#include "shale/models/training/report/tensor_histograms.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>

#include "shale/base/error.h"
#include "shale/kernels/elementwise.h"

namespace shale::models {
namespace {

constexpr int kShift = 21;  // 32 bits without sign, exponent and two mantissa bits
constexpr uint32_t kNotFinite = 0xffu << 2;
constexpr int64_t kHalf = ValueCounts::kRanges / 2;
constexpr int64_t kPiece = int64_t{1} << 20;  // values copied to the host at a time

// Returns the magnitude at which a range begins.
double edge(uint32_t range) {
  return range >= kNotFinite ? double{std::numeric_limits<float>::max()}
                             : double{std::bit_cast<float>(range << kShift)};
}

// Reads an f32 vector on the host, a piece at a time.
class HostPieces {
 public:
  explicit HostPieces(const Tensor& vector) : vector_(vector) {}

  void add_to(ValueCounts& counts, int64_t begin, int64_t count) {
    for (int64_t done = 0; done < count; done += kPiece) {
      const int64_t size = std::min(kPiece, count - done);
      counts.add(piece(begin + done, size));
    }
  }

 private:
  std::span<const float> piece(int64_t begin, int64_t count) {
    Context& context = vector_.context();
    const Tensor part = vector_slice(vector_, begin, count);
    const auto size = static_cast<size_t>(count);
    if (context.device().type == DeviceType::kCpu && part.dtype() == DType::kF32) {
      return {static_cast<const float*>(part.data()), size};
    }
    values_.resize(size);
    if (part.dtype() == DType::kF32) {
      context.copy(values_.data(), part.data(), part.bytes());
    } else {
      const Tensor wide = empty(context, {count}, DType::kF32, MemoryTag::kWorkspace);
      kernels::axpby(context.exec(), {.a = part, .y = wide});
      context.copy(values_.data(), wide.data(), wide.bytes());
    }
    context.synchronize();
    return values_;
  }

  const Tensor& vector_;
  std::vector<float> values_;
};

// Calls visit(begin, count) for the elements of a span's shard, without padding.
template <typename Visit>
void for_each_used(const OptimSpan& span, const Visit& visit) {
  const Parameter& parameter = *span.parameter;
  if (parameter.padding_rows == 0) return visit(span.offset, span.count);
  const Shape& whole = parameter.whole;
  const int64_t used = whole.numel() / whole[0] * (whole[0] - parameter.padding_rows);
  for_each_rows(whole, parameter.sharding, span.first, span.count, [&](const PartRows& some) {
    for (int64_t row = 0; row < some.rows; ++row) {
      const int64_t count = std::min(some.run, used - some.in_whole - row * some.stride);
      if (count > 0) visit(span.offset + some.in_part - span.first + row * some.run, count);
    }
  });
}

}  // namespace

void ValueCounts::add(std::span<const float> values) {
  for (const float value : values) {
    uint32_t range = std::bit_cast<uint32_t>(value) >> kShift;
    if (value == 0) range = 0;  // +0 and -0 share a range
    ++counts[range];
    if ((range & kNotFinite) == kNotFinite) continue;
    const double wide = value;
    sum += wide;
    sum_of_squares += wide * wide;
    least = finite == 0 ? wide : std::min(least, wide);
    most = finite == 0 ? wide : std::max(most, wide);
    ++finite;
  }
}

Histogram histogram_of(const ValueCounts& counts, double scale) {
  Histogram histogram{.least = counts.least * scale,
                      .most = counts.most * scale,
                      .count = static_cast<double>(counts.finite),
                      .sum = counts.sum * scale,
                      .sum_of_squares = counts.sum_of_squares * scale * scale};
  if (counts.finite == 0) return histogram;
  const auto largest = static_cast<float>(std::max(-counts.least, counts.most));
  const uint32_t top = std::bit_cast<uint32_t>(largest) >> kShift;
  constexpr uint32_t kShown = 16 * 4 + 4;  // 4 ranges for each of the top 17 powers of two
  const uint32_t bottom = top > kShown ? top - kShown : 0;
  const auto add = [&histogram](double right_edge, int64_t count) {
    histogram.right_edges.push_back(right_edge);
    histogram.counts.push_back(static_cast<double>(count));
  };
  // Negative ranges first, from the largest magnitude; a viewer uses the minimum as the begin of
  // the first range.
  for (uint32_t range = top; range > bottom; --range) {
    add(-edge(range) * scale, counts.counts[static_cast<size_t>(kHalf) + range]);
  }
  int64_t small = 0;
  for (uint32_t range = 0; range <= bottom; ++range) {
    small += counts.counts[range] + counts.counts[static_cast<size_t>(kHalf) + range];
  }
  add(edge(bottom + 1) * scale, small);
  for (uint32_t range = bottom + 1; range <= top; ++range) {
    add(edge(range + 1) * scale, counts.counts[range]);
  }
  return histogram;
}

std::vector<TensorHistogram> tensor_histograms(HistogramOf what,
                                               const std::vector<Parameter*>& parameters,
                                               const std::vector<OptimShard>& shards,
                                               comm::ProcessGroup& group, double scale) {
  std::map<const Parameter*, size_t> places;
  for (const Parameter* parameter : parameters) places.emplace(parameter, places.size());
  std::vector<ValueCounts> all(parameters.size());
  for (const OptimShard& shard : shards) {
    if (shard.peers == nullptr && group.rank() != 0) continue;  // replicated on all ranks
    HostPieces pieces(what == HistogramOf::kParameters ? shard.master : shard.grad);
    for (const OptimSpan& span : shard.spans) {
      const auto place = places.find(span.parameter);
      if (place == places.end() || span.count == 0) continue;
      for_each_used(span, [&](int64_t begin, int64_t count) {
        pieces.add_to(all[place->second], begin, count);
      });
    }
  }
  std::vector<int64_t> counts;
  std::vector<double> sums, extremes;
  for (const ValueCounts& one : all) {
    counts.insert(counts.end(), one.counts.begin(), one.counts.end());
    counts.push_back(one.finite);
    sums.insert(sums.end(), {one.sum, one.sum_of_squares});
    constexpr double kNone = -std::numeric_limits<double>::infinity();
    extremes.insert(extremes.end(),
                    {one.finite > 0 ? -one.least : kNone, one.finite > 0 ? one.most : kNone});
  }
  const auto view = [](auto& values) {
    return make_view(values.data(), {static_cast<int64_t>(values.size())});
  };
  comm::ProcessGroup& host = group.host();
  host.all_reduce_sum(view(counts), {.tag = "histograms"});
  host.all_reduce_sum(view(sums), {.tag = "histograms"});
  host.all_reduce_max(view(extremes), {.tag = "histograms"});
  std::vector<TensorHistogram> histograms;
  for (size_t i = 0; i < parameters.size(); ++i) {
    ValueCounts& one = all[i];
    const auto begin = counts.begin() + static_cast<ptrdiff_t>(i * (one.counts.size() + 1));
    std::copy_n(begin, one.counts.size(), one.counts.begin());
    one.finite = begin[static_cast<ptrdiff_t>(one.counts.size())];
    one.sum = sums[2 * i], one.sum_of_squares = sums[2 * i + 1];
    one.least = -extremes[2 * i], one.most = extremes[2 * i + 1];
    if (!parameters[i]->trainable) continue;
    histograms.push_back({parameters[i]->full_name(), histogram_of(one, scale)});
  }
  return histograms;
}

}  // namespace shale::models
