#pragma once

#include <string>
#include <vector>

#include "shale/base/device.h"
#include "shale/runtime/tensor/device_backend.h"

namespace shale::comm {

// Device request of a rank. Default: one GPU per rank if there are GPUs, else the CPU.
struct DeviceWish {
  bool gpu = false;        // a GPU is required
  bool may_share = false;  // allow several ranks on one GPU: they exchange data through host memory
};

// Host of a rank, and the GPUs that its process may use.
struct RankGpus {
  std::string host;
  GpuList gpus;
  std::string host_identity;  // differs between hosts of one name
};

// Chooses the device of `rank` from what all ranks see; gives the same answers on every rank. Ranks
// of a host choose in rank order: each takes, of its visible GPUs, the first that the fewest lower
// ranks have. If all ranks see all GPUs, that is the GPU of the local rank.
//
// Throws UnavailableError, naming the ranks: if a GPU is required and a rank sees none; if only
// some ranks see GPUs; if all GPUs of a rank are taken and it may not share.
Device choose_device(const std::vector<RankGpus>& ranks, int rank, const DeviceWish& wish);

}  // namespace shale::comm
