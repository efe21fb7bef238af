#pragma once

#include <functional>
#include <span>

#include "shale/comm/process_group.h"
#include "shale/runtime/optim/replicas.h"

namespace shale::comm {

// The mean over a group's ranks at one bit an element, with error feedback on both ways
// (arXiv:2102.02888, section 3): each rank packs its vectors (kernels/one_bit.h), slices of the
// blocks of all of them together go to their owners by an all-to-all, an owner averages its slice
// in the order of the ranks and packs it again, and an all-gather brings it to all. What packing
// leaves out stays with who packed, and is part of the next mean: the sum of all means and what is
// owed is that of the exact ones.
//
// With B blocks, rounded up to a multiple of N ranks, a rank sends (N - 1) / N * B * 132 bytes each
// way: 33/32 bits an element, 1/31 of an all-reduce of f32.
//
// Collective: the ranks give vectors of the same lengths. `wait` is called with what the compute
// stream is to wait for. Throws ShapeError for owner_owed of another length than
// ShardReplicas::owned().
void compressed_mean(ProcessGroup& group, const Exec& exec, std::span<const OneBitVector> vectors,
                     const std::function<void(const Work&)>& wait);

// The replicas that the ranks of a group are, which outlives them as `wait` does.
ShardReplicas replicas_of(ProcessGroup& group, std::function<void(const Work&)> wait);

}  // namespace shale::comm
