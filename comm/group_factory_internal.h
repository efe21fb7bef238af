#pragma once

#include <memory>

#include "shale/comm/host_group.h"
#include "shale/comm/mpi_internal.h"
#include "shale/comm/world_context.h"

namespace shale {
class DeviceBackend;
}

namespace shale::comm {

// A group over `comm`, for host memory: `self` if it has one rank, else `mpi`. Collective.
std::unique_ptr<HostGroup> make_host_group(std::shared_ptr<WorldContext> context, MpiComm comm,
                                           const GroupOptions& options);

// A group of the same ranks for tensors of `device`: `host` itself on the CPU, else `nccl` or
// `staged`, according to its options. Throws UnavailableError if that transport is unavailable.
// Collective.
std::unique_ptr<ProcessGroup> make_device_group(std::shared_ptr<WorldContext> context,
                                                std::unique_ptr<HostGroup> host,
                                                DeviceBackend& device);

}  // namespace shale::comm
