#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shale/kernels/registry.h"

namespace shale::kernel_check {

// Call the function of the same name in namespace kernels for the device's type. CPU kernels have
// no parts, so on the CPU they return 0 and do nothing.
kernels::KernelParts parts_of(const Device& device, std::string_view slot);
void leave_out(const Device& device, std::string_view slot, kernels::KernelParts parts);

// Returns the names of the parts in the set `parts` of a slot, in the order of their bits.
// Examples: "attention_fwd/hopper", "gemm/vendor", "gemm/fused", "max_pool/all".
std::vector<std::string> names_of(std::string_view slot, kernels::KernelParts parts);
// Leaves out the named parts in all later kernel calls of this process on devices of this type.
// Slots without a named part do not change. Throws DataError for unknown names.
void leave_out(const Device& device, std::span<const std::string> names);

}  // namespace shale::kernel_check
