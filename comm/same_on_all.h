#pragma once

#include <string_view>

#include "shale/comm/process_group.h"

namespace shale::comm {

// Compares a description of something that must be equal on all ranks, such as the input data.
// Throws CommError on every rank, naming `what` and the ranks that differ from rank 0. Collective,
// blocking.
void require_same_on_all(ProcessGroup& group, std::string_view what, std::string_view mine);

}  // namespace shale::comm
