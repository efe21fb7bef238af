#pragma once

#include <string>
#include <vector>

#include "shale/comm/process_group.h"
#include "shale/runtime/tensor/context.h"

namespace shale::models {

// Returns the kernels that no rank may use, sorted (kernel_check/kernel_parts.h): those that failed
// the check on any rank's GPU. This process no longer uses them. Logs them.
//
// For each host and GPU model, one rank runs the check, if the host has no complete stored check of
// this model, driver and build. The check takes at most 20 s, or half of timeout_s if that is not
// 0. SHALE_KERNEL_CHECK=off: does not run checks or read stored ones here. SHALE_KERNEL_CHECK=on:
// does so on emulated GPUs too. Returns nothing on CPUs. Collective.
std::vector<std::string> choose_kernels(Context& context, comm::ProcessGroup& group,
                                        double timeout_s);

// For tools: stops the use of the kernels that failed in this host's stored check of such a GPU.
// Runs no check. SHALE_KERNEL_CHECK has the same effect as in choose_kernels().
void use_stored_check(const Device& device);

}  // namespace shale::models
