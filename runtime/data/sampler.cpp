#include "shale/runtime/data/sampler.h"

#include <algorithm>
#include <bit>

#include "shale/base/error.h"

namespace shale {
namespace {

// Number of rounds of the Feistel network. Four are enough for a large domain. A small domain is
// mixed less by each round, and rounds are cheap.
constexpr uint32_t kRounds = 8;
constexpr uint32_t kOffsetDraw = 0xffffffff;  // draw number for the offset, which no round uses

constexpr uint64_t low_mask(int bits) {
  return (uint64_t{1} << bits) - 1;
}

}  // namespace

int64_t count_windows(int64_t tokens, int64_t seq_len) {
  if (seq_len < 1) throw ConfigError(cat("seq-len is ", seq_len, ", expected at least 1"));
  if (tokens < seq_len + 1) {
    throw DataError(cat("the data has ", tokens, " tokens, expected at least ", seq_len + 1,
                        ": a sequence of ", seq_len,
                        " and the token after it; use a shorter --seq-len or more data"));
  }
  return (tokens - 1) / seq_len;
}

Permutation::Permutation(int64_t n, uint64_t seed, uint64_t epoch)
    : n_(n), key_(rng_key(seed, RngDomain::kShuffle)), epoch_(epoch) {
  if (n < 1) throw InternalError(cat("permutation of ", n, " elements, expected at least 1"));
  const int bits = static_cast<int>(std::bit_width(static_cast<uint64_t>(n - 1)));
  high_bits_ = bits / 2;
  low_bits_ = bits - high_bits_;
}

uint32_t Permutation::round(uint32_t half, uint32_t number) const {
  return philox({half, number, static_cast<uint32_t>(epoch_), static_cast<uint32_t>(epoch_ >> 32)},
                key_)[0];
}

uint64_t Permutation::encrypt(uint64_t block) const {
  // Each round changes one half by a function of the other half. That is invertible, even if the
  // halves have different lengths, so the network is a permutation.
  auto high = static_cast<uint32_t>(block >> low_bits_);
  auto low = static_cast<uint32_t>(block & low_mask(low_bits_));
  for (uint32_t i = 0; i < kRounds; i += 2) {
    low ^= round(high, i) & static_cast<uint32_t>(low_mask(low_bits_));
    high ^= round(low, i + 1) & static_cast<uint32_t>(low_mask(high_bits_));
  }
  return uint64_t{high} << low_bits_ | low;
}

int64_t Permutation::operator()(int64_t i) const {
  if (i < 0 || i >= n_)
    throw InternalError(cat("permutation: index ", i, ", expected [0, ", n_, ")"));
  // The loop ends, because the values form a cycle that returns to i, which is inside.
  auto value = static_cast<uint64_t>(i);
  do {
    value = encrypt(value);
  } while (value >= static_cast<uint64_t>(n_));
  return static_cast<int64_t>(value);
}

TrainSampler::TrainSampler(int64_t stream_tokens, int64_t seq_len, uint64_t seed)
    : seq_len_(seq_len), seed_(seed) {
  const int64_t all = count_windows(stream_tokens, seq_len);
  // number of windows that fit at every offset below seq_len
  const int64_t movable = (stream_tokens - seq_len) / seq_len;
  // A very short stream gives one window, at any offset that the stream allows.
  samples_ = std::min(all, std::max<int64_t>(movable, 1));
  offsets_ = std::min(seq_len, stream_tokens - samples_ * seq_len);
}

int64_t TrainSampler::offset(uint64_t epoch) const {
  const PhiloxCounter draw =
      philox({0, kOffsetDraw, static_cast<uint32_t>(epoch), static_cast<uint32_t>(epoch >> 32)},
             rng_key(seed_, RngDomain::kShuffle));
  const uint64_t wide = uint64_t{draw[1]} << 32 | draw[0];
  // The remainder makes small offsets more likely, but by at most seq_len / 2^64.
  return static_cast<int64_t>(wide % static_cast<uint64_t>(offsets_));
}

TokenWindow TrainSampler::window(int64_t position) const {
  if (position < 0) throw InternalError(cat("sample position ", position, ", expected 0 or more"));
  const int64_t epoch = position / samples_;
  const auto key = static_cast<uint64_t>(epoch);
  const int64_t index = Permutation(samples_, seed_, key)(position % samples_);
  return {index * seq_len_ + offset(key), epoch, index};
}

void BatchLayout::validate() const {
  const auto require = [](const char* name, int64_t value) {
    if (value < 1) throw ConfigError(cat(name, " is ", value, ", expected at least 1"));
  };
  require("global-batch", global_batch);
  require("micro-batch", micro_batch);
  require("number of ranks", ranks);
  int64_t unit = 0;
  const bool overflows = __builtin_mul_overflow(micro_batch, ranks, &unit);
  const auto require_multiple = [&](const char* name, int64_t batch) {
    if (!overflows && batch % unit == 0) return;
    throw ConfigError(cat(name, " is ", batch, ", expected a multiple of micro-batch ", micro_batch,
                          " x ", ranks, ranks == 1 ? " rank" : " ranks"));
  };
  require_multiple("global-batch", global_batch);
  int64_t begin = 0;
  for (const BatchPhase& phase : ramp) {
    require("a batch of batch-ramp", phase.global_batch);
    require_multiple("a batch of batch-ramp", phase.global_batch);
    require("number of steps of batch-ramp", phase.end - begin);
    begin = phase.end;
  }
}

int64_t BatchLayout::batch_at(int64_t step) const {
  for (const BatchPhase& phase : ramp) {
    if (step < phase.end) return phase.global_batch;
  }
  return global_batch;
}

int64_t BatchLayout::largest_batch() const {
  int64_t largest = global_batch;
  for (const BatchPhase& phase : ramp) largest = std::max(largest, phase.global_batch);
  return largest;
}

int64_t BatchLayout::samples_before(int64_t step) const {
  int64_t samples = 0, begin = 0;
  for (const BatchPhase& phase : ramp) {
    const int64_t end = std::clamp(step, begin, phase.end);
    samples += (end - begin) * phase.global_batch;
    begin = phase.end;
  }
  return samples + std::max<int64_t>(step - begin, 0) * global_batch;
}

std::optional<int64_t> BatchLayout::skip(int64_t first, int64_t last, int64_t from, int64_t steps) {
  int64_t step = from, end = std::max(from, steps);
  while (step < end) {  // binary search, because begin() grows with the step
    const int64_t middle = step + (end - step) / 2;
    begin(middle + 1) < first ? step = middle + 1 : end = middle;
  }
  if (step >= steps || begin(step) >= last) return {};
  skipped = last - begin(step);
  skips_at = step;
  return step;
}

BatchLayout::Place BatchLayout::place_of(int64_t first_step, int64_t index) const {
  int64_t step = first_step, left = index;
  for (const BatchPhase& phase : ramp) {
    if (step >= phase.end) continue;
    const int64_t per_step = micro_batches(step), count = (phase.end - step) * per_step;
    if (left < count) return {step + left / per_step, left % per_step};
    left -= count;
    step = phase.end;
  }
  const int64_t per_step = micro_batches(step);
  return {step + left / per_step, left % per_step};
}

EvalRounds::EvalRounds(int64_t samples, int64_t batch, int64_t max_samples)
    : samples_(max_samples > 0 ? std::min(samples, max_samples) : samples), batch_(batch) {
  if (batch < 1) throw ConfigError(cat("micro-batch is ", batch, ", expected at least 1"));
}

int64_t EvalRounds::rounds(int64_t ranks) const {
  const int64_t per_round = ranks * batch_;
  return (samples_ + per_round - 1) / per_round;
}

EvalRounds::Range EvalRounds::range(int64_t round, int64_t rank, int64_t ranks) const {
  const int64_t first = (round * ranks + rank) * batch_;
  return {first, std::clamp(samples_ - first, int64_t{0}, batch_)};
}

}  // namespace shale
