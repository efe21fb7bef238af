#pragma once

#include <functional>
#include <span>

#include "shale/comm/process_group.h"
#include "shale/runtime/optim/replicas.h"

namespace shale::comm {

// Mean over a group's ranks at one bit per element, with error feedback in both directions
// (arXiv:2102.02888, section 3). Each rank packs its vectors into blocks of signs
// (kernels/one_bit.h). An all-to-all sends each slice of the blocks to its owner. The owner
// averages its slice in rank order and packs it again. An all-gather distributes the results. The
// rank that packs keeps the error and adds it to the next mean. The sum of all means and pending
// errors therefore equals that of the exact means.
//
// With B blocks, rounded up to a multiple of N ranks, a rank sends (N - 1) / N * B * 132 bytes in
// each direction: 33/32 bits per element, 1/31 of an f32 all-reduce.
//
// The ranks pass vectors of the same lengths. `wait` is called with each Work that the compute
// stream must wait for. Throws ShapeError if the length of owner_owed is not that of
// ShardReplicas::owned(). Collective.
void compressed_mean(ProcessGroup& group, const Exec& exec, std::span<const OneBitVector> vectors,
                     const std::function<void(const Work&)>& wait);

// Describes the ranks of a group as replicas. `group` and `wait` must outlive the result.
ShardReplicas replicas_of(ProcessGroup& group, std::function<void(const Work&)> wait);

}  // namespace shale::comm
