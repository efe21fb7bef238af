#pragma once

#include <cstddef>
#include <span>

#include "shale/comm/process_group.h"

namespace shale::comm {

// Adds the values of all ranks, with the same bits on every rank. Value j of rank r is leaf j *
// ranks + r of one binary tree, which is the order of micro-batches for any number of ranks. All
// ranks pass the same number of values. If `of` is not empty, only the ranks in it count, and r is
// the index in `of`. Blocking.
double ordered_sum(ProcessGroup& group, std::span<const double> values,
                   std::span<const int> of = {});

// Adds values that are all on this rank, in the same order. rows: one row per rank, of which the
// first `count` values are added.
double ordered_sum(std::span<const double> rows, size_t ranks, size_t count,
                   std::span<const int> of = {});

}  // namespace shale::comm
