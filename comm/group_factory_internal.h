#pragma once

#include <memory>

#include "shale/comm/host_group.h"
#include "shale/comm/mpi_internal.h"
#include "shale/comm/world_context.h"

namespace shale {
class DeviceBackend;
}

namespace shale::comm {

// Makes a group over `comm` for host memory: "self" for one rank, otherwise "mpi". Collective.
std::unique_ptr<HostGroup> make_host_group(std::shared_ptr<WorldContext> context, MpiComm comm,
                                           const GroupOptions& options);

// Makes a group of the same ranks for tensors of `device`. On the CPU it is `host` itself, on a GPU
// "nccl" or "staged", according to the options of `host`. Throws UnavailableError if that backend
// is unavailable. Collective.
std::unique_ptr<ProcessGroup> make_device_group(std::shared_ptr<WorldContext> context,
                                                std::unique_ptr<HostGroup> host,
                                                DeviceBackend& device);

}  // namespace shale::comm
