#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "shale/comm/process_group.h"
#include "shale/comm/world.h"
#include "shale/runtime/tensor/context.h"

namespace shale::models {

// Before training: what would otherwise show as wrong numbers or late failures. All are quick.

// Whether ranks compute right together (an all-reduce of ones), run the same build of the same
// program with the same libraries, and were given the same options. config: the options as
// ConfigSpec::to_json() prints them; --threads may differ. Throws CommError, on all ranks, naming
// what differs and the ranks. Collective.
void check_ranks(comm::ProcessGroup& group, std::string_view config);

// Whether an all-reduce of ones is right in every element on the group's own way, memory of the
// context's device: what trains there need not go through the host. Throws CommError on the ranks
// that see it wrong, naming element and value. Collective.
void check_device_sums(Context& context, comm::ProcessGroup& group);

// Whether the disk of `folder`, which exists, has room for `count` more checkpoints of so many
// bytes. Throws DiskError with folder, found and wanted if there is none for one; for less than all
// of them it warns.
void check_room(const std::string& folder, int64_t checkpoint_bytes, int64_t count);

// Warns, on one rank of each node, of folders where Open MPI needs more room than there is left.
void check_room_for_mpi(const comm::World& world);

// The build's own number, which the linker puts into the running program; its size where there is
// none.
std::string build_id();

}  // namespace shale::models
