#include "shale/runtime/data/mixture.h"

#include <algorithm>
#include <cmath>

#include "shale/base/error.h"
#include "shale/runtime/data/content_scan.h"

namespace shale {
namespace {

constexpr int kPeriodBits = 31;
// number of samples after which the order repeats
constexpr uint64_t kPeriod = uint64_t{1} << kPeriodBits;
// Times are integers, in units of 2^-32 of a period. Within one unit a source has at most one
// sample.
constexpr int kTimeBits = 32;
constexpr size_t kMostSources = 1 << 16;

// A source has `count` samples per period. Returns how many of them come before `time`.
uint64_t before(uint64_t count, uint64_t time) {
  return (time * count + (uint64_t{1} << (kTimeBits - 1))) >> kTimeBits;
}

}  // namespace

Mixture::Mixture(std::span<const double> weights) {
  if (weights.empty() || weights.size() > kMostSources) {
    throw ConfigError(cat("mixture: ", weights.size(), " sources, expected 1 to ", kMostSources));
  }
  double sum = 0;
  for (const double weight : weights) {
    if (!(weight > 0 && std::isfinite(weight))) {
      throw ConfigError(cat("mixture: a weight is ", weight, ", expected a number above 0"));
    }
    sum += weight;
  }
  int64_t rest = kPeriod;
  for (const double weight : weights) {
    const double exact = weight / sum * static_cast<double>(kPeriod);
    counts_.push_back(std::max<uint64_t>(static_cast<uint64_t>(exact), 1));
    rest -= static_cast<int64_t>(counts_.back());
  }
  uint64_t& heaviest = *std::max_element(counts_.begin(), counts_.end());
  heaviest = static_cast<uint64_t>(static_cast<int64_t>(heaviest) + rest);
}

double Mixture::share(int64_t source) const {
  return static_cast<double>(counts_.at(static_cast<size_t>(source))) /
         static_cast<double>(kPeriod);
}

uint64_t Mixture::fingerprint() const {
  uint64_t all = 0;
  for (const uint64_t count : counts_) {
    all = data_internal::mix_fingerprint(all, "share", static_cast<int64_t>(count));
  }
  return all;
}

Mixture::Draw Mixture::draw(int64_t position) const {
  if (position < 0)
    throw InternalError(cat("mixture: position ", position, ", expected 0 or more"));
  const auto period = static_cast<uint64_t>(position) >> kPeriodBits;
  const uint64_t in_period = static_cast<uint64_t>(position) & (kPeriod - 1);
  // before() gives the number of a source's samples before a time. Searches for the last time at
  // which the sum over all sources is at most in_period.
  uint64_t time = 0;
  for (uint64_t step = uint64_t{1} << (kTimeBits - 1); step > 0; step /= 2) {
    uint64_t all = 0;
    for (const uint64_t count : counts_) all += before(count, time + step);
    if (all <= in_period) time += step;
  }
  uint64_t left = in_period;
  for (const uint64_t count : counts_) left -= before(count, time);
  for (size_t i = 0; i < counts_.size(); ++i) {
    const uint64_t index = before(counts_[i], time);
    if (before(counts_[i], time + 1) == index) continue;
    if (left-- > 0) continue;
    return {static_cast<int64_t>(i), static_cast<int64_t>(period * counts_[i] + index)};
  }
  throw InternalError(cat("mixture: no source at position ", position));
}

}  // namespace shale
