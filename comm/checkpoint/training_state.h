#pragma once

#include <string>
#include <vector>

#include "shale/comm/checkpoint/reader.h"
#include "shale/comm/parallel/data/data_parallel.h"
#include "shale/runtime/nn/state_part.h"
#include "shale/runtime/optim/optimizer.h"

namespace shale::comm {

// All tensors that a resumed run needs, in the same order on all ranks, except those without
// elements; padding is in none of them.
// Host memory may be behind until the optimizer's step there is over (offload::OptimizerOffload).
std::vector<StatePart> training_state(const DataParallel& parallel,
                                      const optim::Optimizer& optimizer);
// Of a model that several optimizers step. Throws ConfigError if two step one parameter, or one
// steps another model's.
std::vector<StatePart> training_state(const DataParallel& parallel,
                                      const std::vector<const optim::Optimizer*>& optimizers);

// Picks what this rank writes of these parts, so that all ranks together write every element once:
// ranks with the same parts share them out evenly by bytes. A tensor has at most one part in the
// result.
std::vector<StatePart> share_to_write(const std::vector<StatePart>& parts,
                                      const ShardGroups& groups);

// Slice `rank` of `ranks` of the parts one after another: about as many bytes for each rank.
std::vector<StatePart> even_share(const std::vector<StatePart>& parts, int rank, int ranks);

// Opens a checkpoint on all ranks of a group: rank 0 reads the manifest, looks at all files and
// tells the others, who open none before they read. Collective. Throws what CheckpointReader's
// constructor throws, on all ranks the same.
CheckpointReader open_checkpoint(ProcessGroup& group, const std::string& folder);

// Fills this rank's parts from a checkpoint, whatever layout it was written on. What every rank of
// a shard group has is read by its rank 0. Collective. Throws DataError, listing names, unless the
// checkpoint has exactly these tensors, in these shapes and dtypes; and what CheckpointReader
// throws, after which the state is neither the old nor the stored one. What goes wrong with this
// rank's own files is thrown on this rank alone.
void load_training_state(CheckpointReader& checkpoint, DataParallel& parallel,
                         const optim::Optimizer& optimizer);
void load_training_state(CheckpointReader& checkpoint, DataParallel& parallel,
                         const std::vector<const optim::Optimizer*>& optimizers);

}  // namespace shale::comm
