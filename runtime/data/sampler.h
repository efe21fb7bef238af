#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "shale/base/rng.h"

namespace shale {

// All samplers are pure functions of (seed, position). To resume a run on any number of ranks, only
// the number of samples used so far is needed.

// A pseudo-random permutation of [0, n) without a table.
//
// It is a Feistel network over the smallest power of two that holds n, with Philox as round
// function (Luby and Rackoff, "How to construct pseudorandom permutations", 1988). A result outside
// [0, n) is permuted again until it is inside (cycle walking: Black and Rogaway, "Ciphers with
// Arbitrary Finite Domains", 2002). This needs fewer than two passes on average.
class Permutation {
 public:
  // Throws InternalError unless n >= 1.
  Permutation(int64_t n, uint64_t seed, uint64_t epoch);

  int64_t size() const { return n_; }
  // returns the value at i; throws InternalError unless i is in [0, n)
  int64_t operator()(int64_t i) const;

 private:
  uint64_t encrypt(uint64_t block) const;
  uint32_t round(uint32_t half, uint32_t number) const;

  int64_t n_;
  PhiloxKey key_;
  uint64_t epoch_;
  int low_bits_ = 0;  // number of bits of the lower half; the upper half has as many or one less
  int high_bits_ = 0;
};

// The seq_len + 1 tokens of a sample in a token stream. The first seq_len are inputs; the targets
// are shifted by one.
struct TokenWindow {
  int64_t begin = 0;  // position of the window's first token in the stream
  int64_t epoch = 0;
  int64_t index = 0;  // index of the window among the windows of the epoch
};

// Training samples. In each epoch, windows side by side cover the stream, and each is used once, in
// random order.
//
// Window i of epoch e begins at i * seq_len + offset(e). The offset is random in [0, seq_len). With
// a fixed offset the same tokens would be first in a window, without context, in every epoch. The
// last seq_len tokens are reserved for the offset, so every epoch has the same number of windows.
class TrainSampler {
 public:
  // Throws DataError if the stream is shorter than one window. The message has the number of tokens
  // found and needed.
  TrainSampler(int64_t stream_tokens, int64_t seq_len, uint64_t seed);

  int64_t samples_per_epoch() const { return samples_; }
  int64_t seq_len() const { return seq_len_; }

  // Returns the window of a sample. position: number of the sample in the endless sequence of
  // samples of all ranks.
  TokenWindow window(int64_t position) const;

 private:
  int64_t offset(uint64_t epoch) const;

  int64_t seq_len_;
  int64_t samples_ = 0;
  int64_t offsets_ = 1;  // number of possible offsets
  uint64_t seed_;
};

// A range of steps with its own global batch. It begins at the end of the previous phase.
struct BatchPhase {
  int64_t global_batch = 1;
  int64_t end = 0;  // first step after the phase
};

// Assigns the positions of samples to ranks. Step s uses positions [begin(s), begin(s + 1)). They
// are divided into leaves, groups of micro_batch consecutive positions. Micro-batch j of rank r is
// leaf j * ranks + r. Losses and gradients are summed by a tree over the leaves, so the order of
// additions does not depend on the number of ranks.
struct BatchLayout {
  // number of sequences per step over all ranks, after the phases of `ramp`
  int64_t global_batch = 1;
  int64_t micro_batch = 1;  // number of sequences per rank and forward
  int64_t ranks = 1;
  // Position at which step 0 would begin, 0 in a new run. If a run continues after `step` steps
  // with other global batches, set it to the number of samples used so far minus
  // samples_before(step). It may be negative.
  int64_t origin = 0;
  // phases with other global batches at the beginning, sorted by end
  std::vector<BatchPhase> ramp = {};
  // From this step on, steps begin `skipped` samples later (see skip()).
  int64_t skips_at = std::numeric_limits<int64_t>::max();
  int64_t skipped = 0;

  // Throws ConfigError unless sizes are at least 1, global batches are multiples of micro_batch *
  // ranks, and each phase has steps.
  void validate() const;
  int64_t batch_at(int64_t step) const;  // global batch of a step
  int64_t largest_batch() const;
  int64_t samples_before(int64_t step) const;
  int64_t begin(int64_t step) const {
    return origin + samples_before(step) + (step >= skips_at ? skipped : 0);
  }
  // Omits samples `first` to `last`, counted from 1. Finds the first of the steps in [from, steps)
  // that would use sample `first` or a later one. That step begins after sample `last` instead.
  // Returns the step; nullopt if no step is affected.
  std::optional<int64_t> skip(int64_t first, int64_t last, int64_t from, int64_t steps);
  int64_t micro_batches(int64_t step) const { return batch_at(step) / (micro_batch * ranks); }
  int64_t first_position(int64_t step, int64_t rank, int64_t micro) const {
    return begin(step) + (micro * ranks + rank) * micro_batch;
  }
  // Step and micro-batch of batch number `index` of a rank. Batch 0 is the first one of step
  // `first_step`.
  struct Place {
    int64_t step = 0, micro = 0;
  };
  Place place_of(int64_t first_step, int64_t index) const;
};

// Returns how many windows fit into a stream side by side, from its start on. Throws DataError if
// there is none; the message has the number of tokens found and needed. Throws ConfigError for a
// sequence length below 1.
int64_t count_windows(int64_t stream_tokens, int64_t seq_len);

// Divides evaluation samples over ranks. Their order is the same for every number of ranks: round k
// covers samples [k * ranks * B, (k + 1) * ranks * B) for a batch of B samples per rank, rank after
// rank. All ranks have the same number of rounds, so that they call the same collectives. In the
// last round a rank may have fewer than B samples, or none.
class EvalRounds {
 public:
  struct Range {
    int64_t first = 0;
    int64_t count = 0;  // number of samples, 0 to batch
  };

  // max_samples: maximum number of samples; 0: all. Throws ConfigError for a batch below 1.
  EvalRounds(int64_t samples, int64_t batch, int64_t max_samples = 0);

  int64_t samples() const { return samples_; }
  int64_t batch() const { return batch_; }
  int64_t rounds(int64_t ranks) const;
  Range range(int64_t round, int64_t rank, int64_t ranks) const;

 private:
  int64_t samples_;
  int64_t batch_;
};

}  // namespace shale
