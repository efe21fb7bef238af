#pragma once

#include <string>
#include <vector>

#include "shale/bench/support/operands.h"

namespace shale::bench {

// Every slot at the sizes that GPT-2 124M gives it (on the CPU 1024 and 2048 tokens, and those of
// the small model "nano"; on a GPU 16384, and the sizes at which GPU libraries are compared; tiny
// ones on the emulator), for each dtype. A test holds this to have a case for every slot.
std::vector<KernelCase> kernel_cases(DeviceType type, const std::vector<DType>& dtypes);

// Why the device has no kernels of that family; empty if it has.
std::string missing_family(KernelFamily family, BenchDevice& device);

// Takes out the cases of families that the device lacks. Returns a line on each such family.
std::vector<std::string> drop_missing_families(std::vector<KernelCase>& cases, BenchDevice& device);

// Takes out the cases of slots that have no kernel for the device. Returns those slots' names.
std::vector<std::string> drop_unfilled(std::vector<KernelCase>& cases, DeviceType type);

}  // namespace shale::bench
