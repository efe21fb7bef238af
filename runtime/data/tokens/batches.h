#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "shale/runtime/data/prefetch.h"
#include "shale/runtime/data/sampler.h"
#include "shale/runtime/data/tokens/samples.h"

namespace shale {

// Sources of token batches for a Prefetcher. The batches have the fields of TokenBatch.

// The fields of a batch of sequences: "inputs" and "targets". If documents are marked, there are
// also "positions" and "first_keys" of the inputs. All are [rows, seq_len] i32.
struct TokenBatch {
  TokenBatch(Batch& batch, int64_t rows, int64_t seq_len, bool with_documents = false);

  int64_t rows, seq_len;
  std::span<int32_t> inputs, targets;        // memory of the fields in `batch`
  std::span<int32_t> positions, first_keys;  // empty if documents are not marked

  TokenRow row(int64_t index) const;
};

// Options of one rank's training batches.
struct TrainBatches {
  std::shared_ptr<const TrainSamples> samples;
  int64_t seq_len = 0;
  BatchLayout layout;
  int64_t rank = 0;
  int64_t first_step = 0;  // number of the first step; above 0 after a resume
  bool with_documents = false;
};

// Returns an endless source. If a step has k micro-batches, batch i is micro-batch i % k of step
// first_step + i / k. Throws ConfigError like BatchLayout::validate(), InternalError unless rank is
// in [0, ranks).
BatchSource train_batches(TrainBatches spec);

// Options of one rank's validation batches.
struct EvalBatches {
  std::shared_ptr<const EvalRows> rows;
  int64_t seq_len = 0;
  EvalRounds sampler;
  int64_t rank = 0;
  int64_t ranks = 1;
  bool with_documents = false;
};

// Returns a source of sampler.rounds(ranks) batches. Rows from `count` on have input 0 and target
// kernels::kIgnoreTarget.
BatchSource eval_batches(EvalBatches spec);

}  // namespace shale
