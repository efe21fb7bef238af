#pragma once

#include <memory>

#include "shale/base/device.h"

namespace shale {

// Time in which NCCL's kernels run on this process's GPU. It is measured by CUPTI, a library of the
// CUDA toolkit that is loaded at run time. There is one object per process. CUPTI slows each kernel
// launch by a few microseconds, and profilers such as Nsight do not work beside it, so it is off by
// default.
class NcclTime {
 public:
  // Returns null if the environment variable SHALE_CUPTI is not set or the device is not a GPU. Its
  // value is "on" or names the file to load. Also returns null, with the reason in the log, if
  // CUPTI is missing or refuses.
  static std::unique_ptr<NcclTime> of(const Device& device);
  NcclTime();  // throws UnavailableError
  ~NcclTime();
  NcclTime(const NcclTime&) = delete;
  NcclTime& operator=(const NcclTime&) = delete;

  // Returns the seconds so far in which at least one of NCCL's kernels ran. A kernel counts when it
  // has ended.
  double seconds();
};

}  // namespace shale
