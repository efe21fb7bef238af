#pragma once

#include <nvtx3/nvToolsExt.h>

#include <string>
#include <string_view>

#include "shale/base/trace.h"

namespace shale {

// Emits scopes as NVTX ranges, so that Nsight shows the kernels and phases of a step by name.
class NvtxRanges final : public Tracer {
 public:
  void enter(std::string_view name) override { nvtxRangePushA(std::string(name).c_str()); }
  void leave() noexcept override { nvtxRangePop(); }
};

}  // namespace shale
