#pragma once

#include <string>
#include <vector>

#include "shale/comm/checkpoint/reader.h"
#include "shale/comm/parallel/data/data_parallel.h"
#include "shale/runtime/nn/state_part.h"
#include "shale/runtime/optim/optimizer.h"

namespace shale::comm {

// Returns all non-empty tensors that a resumed run needs, without padding, in the same order on all
// ranks. Tensors in host memory may be outdated while an optimizer step runs on the host
// (offload::OptimizerOffload).
std::vector<StatePart> training_state(const DataParallel& parallel,
                                      const optim::Optimizer& optimizer);
// Training state of a model with several optimizers. Throws ConfigError if two optimizers update
// the same parameter, or if one updates a parameter of another model.
std::vector<StatePart> training_state(const DataParallel& parallel,
                                      const std::vector<const optim::Optimizer*>& optimizers);

// Selects the parts that this rank writes. All ranks together write every element once: ranks that
// have the same parts divide them evenly by bytes. The result has at most one part of each box.
std::vector<StatePart> share_to_write(const std::vector<StatePart>& parts,
                                      const ShardGroups& groups);

// Returns slice `rank` of `ranks` of the concatenated parts, with about equal bytes for each rank.
std::vector<StatePart> even_share(const std::vector<StatePart>& parts, int rank, int ranks);

// Opens a checkpoint on all ranks of a group. Rank 0 reads the manifest, checks all files and sends
// the manifest to the other ranks, which open files only to read them. Collective. Throws what
// CheckpointReader's constructor throws, the same on all ranks.
CheckpointReader open_checkpoint(ProcessGroup& group, const std::string& folder);

// Fills this rank's parts from a checkpoint of any layout. Rank 0 of a shard group reads the parts
// that all ranks of the group have. States that differ between replicas are averaged if the
// checkpoint has another number of replicas. Collective. Throws DataError, listing names, if the
// checkpoint has other tensors, shapes or dtypes, and what CheckpointReader throws. An error may
// occur on one rank only; the state is then undefined.
void load_training_state(CheckpointReader& checkpoint, DataParallel& parallel,
                         const optim::Optimizer& optimizer);
void load_training_state(CheckpointReader& checkpoint, DataParallel& parallel,
                         const std::vector<const optim::Optimizer*>& optimizers);

}  // namespace shale::comm
