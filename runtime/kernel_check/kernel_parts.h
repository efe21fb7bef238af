#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shale/kernels/registry.h"

namespace shale::kernel_check {

// Call the functions of the same names in kernels:: for the device's type. On the CPU, whose
// kernels have no parts, return 0 and do nothing.
kernels::KernelParts parts_of(const Device& device, std::string_view slot);
void leave_out(const Device& device, std::string_view slot, kernels::KernelParts parts);

// Names of a slot's parts, in the order of their values: "attention_fwd/hopper", "gemm/vendor",
// "gemm/fused", "max_pool/all".
std::vector<std::string> names_of(std::string_view slot, kernels::KernelParts parts);
// Leaves out the parts of these names, for all later kernel calls of this process on devices of
// this type. Slots without a listed part do not change. Throws DataError for unknown names.
void leave_out(const Device& device, std::span<const std::string> names);

}  // namespace shale::kernel_check
