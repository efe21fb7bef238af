#pragma once

#include <cstdint>

#include "shale/comm/parallel/context/cut_sequence.h"
#include "shale/runtime/data/prefetch.h"

namespace shale::models {

// Of batches of whole sequences, whose fields are those of a TokenBatch [B, T] i32, the tokens that
// a rank has of them: [n B, T / R] in the order of comm::CutSequence. Padding has input 0, a target
// that the loss ignores (kernels::kIgnoreTarget), and else what the last token has.
BatchSource cut_batches(BatchSource whole, const comm::SequenceParts& parts);
// One such batch.
void cut_batch(const Batch& whole, const comm::SequenceParts& parts, Batch& own);

}  // namespace shale::models
