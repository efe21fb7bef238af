#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "shale/comm/process_group.h"
#include "shale/comm/world.h"
#include "shale/models/training/run_config.h"
#include "shale/runtime/tensor/context.h"

namespace shale::models {

// Quick checks before training. They find problems that would otherwise cause wrong numbers or late
// failures.

// Checks that all ranks compute an all-reduce of ones correctly, run the same build of the same
// program with the same libraries, and have the same options. config: the options as printed by
// ConfigSpec::to_json(); --threads may differ between ranks. Throws CommError on all ranks, with
// the difference and the ranks. Collective.
void check_ranks(comm::ProcessGroup& group, std::string_view config);

// Checks every element of an all-reduce of ones in the device memory of the context, over the
// transport that training will use. Throws CommError on the ranks that find a wrong value, with
// element and value. Collective.
void check_device_sums(Context& context, comm::ProcessGroup& group);

// Checks that the disk of the existing `folder` has room for `count` more checkpoints of
// `checkpoint_bytes` bytes. Throws DiskError, with the bytes found and needed, if there is no room
// for one; warns if there is not enough for all.
void check_room(const std::string& folder, int64_t checkpoint_bytes, int64_t count);

// Warns, on one rank of each node, if it has more CPU ranks than CPUs.
void check_cores(const comm::World& world, const Device& device);

// Warns, on rank 0, if the learning rate is far from that of the model's preset.
void check_learning_rate(const RunConfig& config, const comm::World& world);

// Warns, on one rank of each node, of folders with too little space for Open MPI.
void check_room_for_mpi(const comm::World& world);

// Returns the linker's build id of the running program, or of libshale.so if Shale's code is in it.
// Without a build id, returns the size of the program's file.
std::string build_id();

}  // namespace shale::models
