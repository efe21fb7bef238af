#pragma once

#include <memory>

#include "shale/base/device.h"

namespace shale {

// Time in which NCCL's kernels run on this process's GPU, by the CUDA toolkit's library CUPTI,
// which is loaded at run time. One per process. CUPTI slows each kernel launch by a few
// microseconds, and profilers such as Nsight do not work beside it, so it is used only if asked
// for.
class NcclTime {
 public:
  // SHALE_CUPTI in the environment is "on" or names the file to load. Null if it is not set, with a
  // reason in the log if CUPTI is missing or refuses, and on devices that are no GPU.
  static std::unique_ptr<NcclTime> of(const Device& device);
  NcclTime();  // throws UnavailableError
  ~NcclTime();
  NcclTime(const NcclTime&) = delete;
  NcclTime& operator=(const NcclTime&) = delete;

  // Returns the seconds so far in which at least one such kernel ran. Kernels count when they have
  // ended.
  double seconds();
};

}  // namespace shale
