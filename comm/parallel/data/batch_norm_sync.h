#pragma once

#include "shale/comm/process_group.h"
#include "shale/runtime/nn/module.h"

namespace shale::comm {

// From now on the batch norms inside a module (nn::BatchNorm) normalise with the moments of all
// ranks of a group, whatever their numbers of rows, forward and backward: as one rank would with
// all the rows, to rounding. The group outlives the module's use; it is best in Lane::kModel, as
// every batch norm waits for it. All ranks call forward and backward alike.
void synchronise_batch_norm(Module& module, ProcessGroup& group);

}  // namespace shale::comm
