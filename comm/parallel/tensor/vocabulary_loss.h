#pragma once

#include <cstdint>

#include "shale/comm/parallel/tensor/exchange.h"

namespace shale::comm {

// linear_cross_entropy() (ops/loss.h) of a table that is cut by rows over ranks: the sum over all
// rows of the softmax cross-entropy, which every rank computes alike. x: all rows [rows, C], as
// enter() gives them; table: this rank's rows of the table [V / ranks, C]; targets: [rows] i32. Per
// row and rank three numbers travel. chunk_rows > 0: the logits of so many rows exist at a time,
// and backward makes them again.
Tensor vocabulary_cross_entropy(Exchange& exchange, const Tensor& x, const Tensor& table,
                                const Tensor& targets, int64_t vocab, int64_t chunk_rows = 0);

}  // namespace shale::comm
