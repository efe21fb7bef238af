#pragma once

#include <cstdint>

#include "shale/comm/parallel/context/cut_sequence.h"
#include "shale/runtime/data/prefetch.h"

namespace shale::models {

// Makes batches of a rank's part of each sequence, [n B, T / R] in the order of comm::CutSequence,
// from batches of whole sequences with the fields of a TokenBatch, [B, T] i32. Padding has input 0,
// a target that the loss ignores (kernels::kIgnoreTarget), and otherwise the values of the last
// token.
BatchSource cut_batches(BatchSource whole, const comm::SequenceParts& parts);
// Makes one batch of cut_batches().
void cut_batch(const Batch& whole, const comm::SequenceParts& parts, Batch& own);

}  // namespace shale::models
