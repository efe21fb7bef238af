#pragma once

#include <string>
#include <vector>

#include "shale/comm/checkpoint/reader.h"
#include "shale/comm/parallel/data/data_parallel.h"
#include "shale/runtime/nn/state_part.h"
#include "shale/runtime/optim/optimizer.h"

namespace shale::comm {

// All non-empty tensors that a resumed run needs, without padding, in the same order on all ranks.
// Tensors in host memory may be outdated until an optimizer step on the host has finished
// (offload::OptimizerOffload).
std::vector<StatePart> training_state(const DataParallel& parallel,
                                      const optim::Optimizer& optimizer);
// Training state of a model with several optimizers. Throws ConfigError if two optimizers step one
// parameter, or one steps a parameter of another model.
std::vector<StatePart> training_state(const DataParallel& parallel,
                                      const std::vector<const optim::Optimizer*>& optimizers);

// Selects the parts that this rank writes, so that all ranks together write every element once:
// ranks with the same parts divide them evenly by bytes. A box of a tensor has at most one part in
// the result.
std::vector<StatePart> share_to_write(const std::vector<StatePart>& parts,
                                      const ShardGroups& groups);

// Returns slice `rank` of `ranks` of the concatenated parts, with about equal bytes for each rank.
std::vector<StatePart> even_share(const std::vector<StatePart>& parts, int rank, int ranks);

// Opens a checkpoint on all ranks of a group. Rank 0 reads the manifest, checks all files and sends
// the manifest to the other ranks, which open files only to read them. Collective. Throws what
// CheckpointReader's constructor throws, the same on all ranks.
CheckpointReader open_checkpoint(ProcessGroup& group, const std::string& folder);

// Fills this rank's parts from a checkpoint of any layout. Rank 0 of a shard group reads parts that
// all its ranks have. Collective. Throws DataError, listing names, unless the checkpoint has
// exactly these tensors, in these shapes and dtypes (states of other numbers of replicas are
// averaged), and what CheckpointReader throws, perhaps on one rank; the state is then undefined.
void load_training_state(CheckpointReader& checkpoint, DataParallel& parallel,
                         const optim::Optimizer& optimizer);
void load_training_state(CheckpointReader& checkpoint, DataParallel& parallel,
                         const std::vector<const optim::Optimizer*>& optimizers);

}  // namespace shale::comm
