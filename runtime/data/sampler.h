#pragma once

#include <cstdint>
#include <vector>

#include "shale/base/rng.h"

namespace shale {

// Everything here is a pure function of (seed, position): a run that goes on after a stop, on any
// number of ranks, needs no state but the number of samples that were used.

// A pseudo-random permutation of [0, n) that needs no table.
//
// A Feistel network over the smallest power of two that holds n, with Philox as round function
// (Luby and Rackoff, "How to construct pseudorandom permutations", 1988). Results outside [0, n)
// go through it again until one is inside (cycle walking: Black and Rogaway, "Ciphers with
// Arbitrary Finite Domains", 2002); fewer than two passes are needed on average.
class Permutation {
 public:
  // Throws InternalError unless n >= 1.
  Permutation(int64_t n, uint64_t seed, uint64_t epoch);

  int64_t size() const { return n_; }
  int64_t operator()(int64_t i) const;  // i in [0, n), else InternalError

 private:
  uint64_t encrypt(uint64_t block) const;
  uint32_t round(uint32_t half, uint32_t number) const;

  int64_t n_;
  PhiloxKey key_;
  uint64_t epoch_;
  int low_bits_ = 0;  // of the block's two halves; the upper one has as many or one less
  int high_bits_ = 0;
};

// Where a sample lies in a token stream: seq_len + 1 tokens (inputs, and targets one further on).
struct TokenWindow {
  int64_t begin = 0;  // position of its first token
  int64_t epoch = 0;
  int64_t index = 0;  // which window of the epoch's tiling
};

// Training samples: in every epoch each window of a tiling of the stream once, in random order.
//
// Window i of epoch e begins at i * seq_len + offset(e). The offset in [0, seq_len) moves the
// tiling, because with a fixed one the same tokens would come first in a window, with nothing
// before them to predict from, in every epoch. The last seq_len tokens are kept free for that,
// so every epoch has the same number of windows.
class TrainSampler {
 public:
  // Throws DataError with the number of tokens found and needed if there is not one window.
  TrainSampler(int64_t stream_tokens, int64_t seq_len, uint64_t seed);

  int64_t samples_per_epoch() const { return samples_; }
  int64_t seq_len() const { return seq_len_; }

  // The sample at `position` of the endless sequence of samples, counted over all ranks.
  TokenWindow window(int64_t position) const;

 private:
  int64_t offset(uint64_t epoch) const;

  int64_t seq_len_;
  int64_t samples_ = 0;
  int64_t offsets_ = 1;  // how many different ones fit
  uint64_t seed_;
};

// The steps of a run from the end of the phase before on, which have a global batch of their own.
struct BatchPhase {
  int64_t global_batch = 1;
  int64_t end = 0;  // the first step after it
};

// Assigns positions to ranks. Step s uses [begin(s), begin(s + 1)), in leaves of micro_batch
// contiguous positions. Micro-batch j of rank r is leaf j * ranks + r: that is its
// place in the tree by which losses and gradients are summed, so the sum has the same order
// whatever the number of ranks.
struct BatchLayout {
  int64_t global_batch = 1;  // sequences per step, all ranks; after `ramp`
  int64_t micro_batch = 1;   // sequences per rank and forward
  int64_t ranks = 1;
  // Where step 0 would begin. A run that goes on with other global batches after `step` steps that
  // used `used` positions has used - samples_before(step), which may be negative.
  int64_t origin = 0;
  std::vector<BatchPhase> ramp = {};  // first; ends rise

  // Throws ConfigError unless sizes are at least 1, global batches multiples of micro_batch *
  // ranks, and phases have steps.
  void validate() const;
  int64_t batch_at(int64_t step) const;  // the global batch of a step
  int64_t largest_batch() const;
  int64_t samples_before(int64_t step) const;
  int64_t begin(int64_t step) const { return origin + samples_before(step); }
  int64_t micro_batches(int64_t step) const { return batch_at(step) / (micro_batch * ranks); }
  int64_t first_position(int64_t step, int64_t rank, int64_t micro) const {
    return begin(step) + (micro * ranks + rank) * micro_batch;
  }
  // Where micro-batch `index` of a rank is, counted from the first one of `first_step`.
  struct Place {
    int64_t step = 0, micro = 0;
  };
  Place place_of(int64_t first_step, int64_t index) const;
};

// Windows of a fixed tiling of a stream, from its start. Throws DataError with the number of tokens
// found and needed if there is not one, ConfigError for a sequence below 1.
int64_t count_windows(int64_t stream_tokens, int64_t seq_len);

// Samples that are evaluated, in order, the same whatever the number of ranks. Round k covers
// samples [k * ranks * B, (k + 1) * ranks * B), rank after rank. All ranks have the same number of
// rounds, so their collectives match; in the last one a rank may have fewer samples than B, or
// none.
class EvalRounds {
 public:
  struct Range {
    int64_t first = 0;
    int64_t count = 0;  // 0 to batch
  };

  // max_samples = 0: all. Throws ConfigError for a batch below 1.
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
