#include "shale/base/error.h"
#include "shale/comm/group_factory_internal.h"
#include "shale/comm/groups/group_self.h"
#include "shale/comm/groups/group_staged.h"
#include "shale/comm/mpi/group_mpi_internal.h"
#include "shale/runtime/tensor/device_backend.h"

#ifdef SHALE_HAVE_NCCL
#include "shale/comm/nccl/group_nccl_internal.h"
#endif

namespace shale::comm {

std::unique_ptr<HostGroup> make_host_group(std::shared_ptr<WorldContext> context, MpiComm comm,
                                           const GroupOptions& options) {
  if (comm.null() || comm.size() == 1) {
    return std::make_unique<SelfGroup>(std::move(context), options);
  }
  // Rank 0's options decide how collectives run.
  int64_t shared[] = {options.ranks_per_node, options.share_memory ? 1 : 0, options.staging_bytes};
  check_mpi(MPI_Bcast(shared, sizeof shared, MPI_BYTE, 0, comm.get()), "MPI_Bcast");
  GroupOptions agreed = options;
  agreed.ranks_per_node = static_cast<int>(shared[0]);
  agreed.share_memory = shared[1] != 0;
  agreed.staging_bytes = shared[2];
  return std::make_unique<MpiGroup>(std::move(context), std::move(comm), agreed);
}

namespace {

// Plans kernels for the smallest GPU of all ranks. Otherwise ranks would add in different orders.
void agree_on_sms(HostGroup& host, ReservedSms& sms) {
  for (const std::string& count : host.all_gather_bytes(cat(sms.total()), "SMs")) {
    sms.limit(std::stoi(count));
  }
}

}  // namespace

std::unique_ptr<ProcessGroup> make_device_group(std::shared_ptr<WorldContext> context,
                                                std::unique_ptr<HostGroup> host,
                                                DeviceBackend& device) {
  const Transport transport = host->options().transport;
  const Device& place = device.device();
  std::string obstacle = cat("it needs tensors on GPUs, found ", place);
  const bool gpu = place.type == DeviceType::kCuda;
  if (gpu) agree_on_sms(*host, device.held());
  if ((gpu && transport != Transport::kMpi) ||
      (place.type == DeviceType::kEmu && transport == Transport::kNccl)) {
    obstacle = "this build is without it: nccl.h was not found";
#ifdef SHALE_HAVE_NCCL
    obstacle = nccl_obstacle(*host, place);
    if (obstacle.empty() && (host->size() > 1 || transport == Transport::kNccl)) {
      return std::make_unique<NcclGroup>(std::move(context), std::move(host), device);
    }
#endif
    if (transport == Transport::kAuto && host->size() > 1) {
      throw UnavailableError(cat("group '", host->options().name, "': NCCL cannot be used: ",
                                 obstacle, "; --comm mpi exchanges data through host memory, which "
                                 "is many times slower"));
    }
  }
  if (transport == Transport::kNccl) {
    throw UnavailableError(
        cat("group '", host->options().name, "': NCCL cannot be used: ", obstacle));
  }
  if (place.type == DeviceType::kCpu) return host;
  return std::make_unique<StagedGroup>(std::move(context), std::move(host), device);
}

}  // namespace shale::comm
