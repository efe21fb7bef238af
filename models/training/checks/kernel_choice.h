#pragma once

#include <string>
#include <vector>

#include "shale/comm/process_group.h"
#include "shale/runtime/tensor/context.h"

namespace shale::models {

// Returns the kernels that all ranks leave out (kernel_check/kernel_parts.h), sorted: every kernel
// that failed the check on any rank's GPU. This process no longer uses these kernels. The check
// runs on one rank of each host and GPU model, if the host has no stored check of that model,
// driver and build; it takes at most 20 s, or half of timeout_s if that is not 0.
// SHALE_KERNEL_CHECK: "off" neither checks nor reads stored checks here, "on" does both on emulated
// GPUs too. Logs what is left out. Returns nothing on CPUs. Collective.
std::vector<std::string> choose_kernels(Context& context, comm::ProcessGroup& group,
                                        double timeout_s);

// Leaves out the kernels that this host's stored check of such a GPU left out; runs no check. For
// tools; SHALE_KERNEL_CHECK as in choose_kernels().
void use_stored_check(const Device& device);

}  // namespace shale::models
