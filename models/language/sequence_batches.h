#pragma once

#include <cstdint>

#include "shale/comm/parallel/context/cut_sequence.h"
#include "shale/runtime/data/prefetch.h"

namespace shale::models {

// Cuts sequences for context parallelism. whole: batches of whole sequences, [B, T] i32 with the
// fields of a TokenBatch. If this rank has n of the R shards of a sequence, makes batches of its
// shards, [n B, T / R] in the order of comm::CutSequence. Padding has input 0, a target that the
// loss ignores (kernels::kIgnoreTarget), and in other fields the value of the last token.
BatchSource cut_batches(BatchSource whole, const comm::SequenceParts& parts);
// Cuts one batch, as cut_batches() does.
void cut_batch(const Batch& whole, const comm::SequenceParts& parts, Batch& own);

}  // namespace shale::models
