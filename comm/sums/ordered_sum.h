#pragma once

#include <cstddef>
#include <span>

#include "shale/comm/process_group.h"

namespace shale::comm {

// The sum over all ranks' values, the same bits on every rank: value j of rank r is leaf j * ranks
// + r of one binary tree over the leaves, the order in which micro-batches follow each other
// whatever the number of ranks. All ranks give equally many values. Of some ranks, r counts in
// `of`, and the values of others do not count; empty: all ranks. Blocking.
double ordered_sum(ProcessGroup& group, std::span<const double> values,
                   std::span<const int> of = {});

// The same of values that are here already: one row for each rank, of which the first `count`
// values are summed.
double ordered_sum(std::span<const double> rows, size_t ranks, size_t count,
                   std::span<const int> of = {});

}  // namespace shale::comm
