#pragma once

#include <cstdint>
#include <vector>

#include "shale/runtime/nn/exchange.h"

namespace shale::nn {

// linear_cross_entropy() (ops/loss.h) of a table that is cut by rows into the leaves of a model:
// the sum over all rows of the softmax cross-entropy, which every rank computes alike. x: all rows
// [rows, C] for each leaf of this rank, as enter() gives them; tables: the leaves' rows of the
// table [V / leaves, C]; targets: [rows] i32. Per row and leaf three numbers travel. chunk_rows >
// 0: the logits of so many rows exist at a time, and backward makes them again.
Tensor vocabulary_cross_entropy(Exchange& exchange, const std::vector<Tensor>& x,
                                const std::vector<Tensor>& tables, const Tensor& targets,
                                int64_t vocab, int64_t chunk_rows = 0);

}  // namespace shale::nn
