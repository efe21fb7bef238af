#pragma once

#include <cstdint>

#include "shale/comm/parallel/tensor/exchange.h"

namespace shale::comm {

// linear_cross_entropy() (ops/loss.h) with a table that is sharded by rows over ranks. Returns the
// softmax cross-entropy summed over all rows, the same value on every rank. x: all rows [rows, C],
// as returned by enter(). table: this rank's rows [V / ranks, C]. targets: [rows] i32. Ranks
// exchange three numbers per row. chunk_rows > 0: only that many rows of logits exist at a time,
// and backward computes them again.
Tensor vocabulary_cross_entropy(Exchange& exchange, const Tensor& x, const Tensor& table,
                                const Tensor& targets, int64_t vocab, int64_t chunk_rows = 0);

}  // namespace shale::comm
