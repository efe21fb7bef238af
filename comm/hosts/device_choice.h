#pragma once

#include <string>
#include <vector>

#include "shale/base/device.h"
#include "shale/runtime/tensor/device_backend.h"

namespace shale::comm {

// What a rank wants to run on. Default: one GPU per rank if there are GPUs, otherwise the CPU.
struct DeviceWish {
  bool gpu = false;        // a GPU is required
  bool may_share = false;  // several ranks may share a GPU; they exchange data on the host
};

// Host of a rank, and the GPUs that its process may use.
struct RankGpus {
  std::string host;
  GpuList gpus;
  std::string host_identity;  // differs between hosts with the same name
};

// Chooses the device of `rank`. Every rank passes the same `ranks` and gets consistent results.
// Ranks of a host choose in rank order. Each takes the visible GPU that the fewest lower ranks have
// taken, the first one if several are equal. If all ranks see all GPUs, that is the GPU with the
// number of the local rank.
//
// Throws UnavailableError, naming the ranks: if a GPU is required and no rank sees one; if only
// some ranks see GPUs; if all GPUs of a rank are taken and it may not share.
Device choose_device(const std::vector<RankGpus>& ranks, int rank, const DeviceWish& wish);

}  // namespace shale::comm
