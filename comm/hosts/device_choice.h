#pragma once

#include <string>
#include <vector>

#include "shale/base/device.h"
#include "shale/runtime/tensor/device_backend.h"

namespace shale::comm {

// What a rank asks for. By default a GPU of its own where there are GPUs, else the CPU.
struct DeviceWish {
  bool gpu = false;        // no CPU in place of a GPU
  bool may_share = false;  // several ranks on one GPU: they exchange data through host memory
};

// A rank's place, and the GPUs that its process may use.
struct RankGpus {
  std::string host;
  GpuList gpus;
};

// The device of `rank`, from what all ranks see: the same answers everywhere. Ranks of a host take
// GPUs in the order of their numbers: each the first of its own that no lower rank has. So where
// all see all GPUs, the local rank is the index; where a launcher shows each rank one, it is 0.
//
// Throws UnavailableError, which names the ranks: where a GPU is wanted and a rank sees none; where
// some ranks see GPUs and others do not; where a rank finds all of its own taken and may not share.
Device choose_device(const std::vector<RankGpus>& ranks, int rank, const DeviceWish& wish);

}  // namespace shale::comm
