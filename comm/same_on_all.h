#pragma once

#include <string_view>

#include "shale/comm/process_group.h"

namespace shale::comm {

// Checks that something is equal on all ranks, such as the input data. mine: its description.
// Throws CommError on every rank, naming `what` and the ranks that differ from rank 0. Collective,
// blocking.
void require_same_on_all(ProcessGroup& group, std::string_view what, std::string_view mine);

}  // namespace shale::comm
