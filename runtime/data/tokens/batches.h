#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "shale/runtime/data/prefetch.h"
#include "shale/runtime/data/sampler.h"
#include "shale/runtime/data/tokens/token_dataset.h"

namespace shale {

// Token streams as sources of batches for a Prefetcher, with the fields of a TokenBatch.

// "inputs" and "targets" of sequences, both [rows, seq_len] i32.
struct TokenBatch {
  TokenBatch(Batch& batch, int64_t rows, int64_t seq_len);

  int64_t rows, seq_len;
  std::span<int32_t> inputs, targets;  // in `batch`
};

// The training batches of one rank.
struct TrainBatches {
  std::shared_ptr<const TokenStream> tokens;
  TrainSampler sampler;
  BatchLayout layout;
  int64_t rank = 0;
  int64_t first_step = 0;  // where to go on after a resume
};

// Endless: batch i is micro-batch i % k of step first_step + i / k, with k micro-batches per step.
// Throws ConfigError as BatchLayout::validate(), InternalError unless rank is in [0, ranks).
BatchSource train_batches(TrainBatches spec);

// The validation batches of one rank.
struct EvalBatches {
  std::shared_ptr<const TokenStream> tokens;
  EvalSampler sampler;
  int64_t rank = 0;
  int64_t ranks = 1;
};

// sampler.rounds(ranks) batches, then the end. Rows from `count` on have input 0 and a target that
// the loss ignores (kernels::kIgnoreTarget).
BatchSource eval_batches(EvalBatches spec);

}  // namespace shale
