#pragma once

#include "shale/comm/process_group.h"
#include "shale/runtime/nn/module.h"

namespace shale::comm {

// Makes the batch norms inside a module (nn::BatchNorm) use the moments of all ranks of a group, in
// forward and backward. Ranks may have different numbers of rows; results equal those of one rank
// with all the rows, up to rounding. The group must outlive the module's use. Its best lane is
// Lane::kModel, because every batch norm waits for the result. All ranks must call forward and
// backward in the same order.
void synchronise_batch_norm(Module& module, ProcessGroup& group);

}  // namespace shale::comm
