#pragma once

#include <string>
#include <vector>

#include "shale/bench/support/bench_device.h"
#include "shale/runtime/kernel_check/operands.h"

namespace shale::bench {

// Returns cases of every slot for each dtype, at the sizes of GPT-2 124M (on the CPU 1024 and 2048
// tokens, and the small model "nano"; on a GPU 16384 tokens, and the sizes at which GPU libraries
// are compared; tiny ones on the emulator). A test checks that every slot has a case.
std::vector<KernelCase> kernel_cases(DeviceType type, const std::vector<DType>& dtypes);

// Returns why the device has no kernels of that family; empty if it has some.
std::string missing_family(KernelFamily family, BenchDevice& device);

// Removes cases of families that the device lacks. Returns a line for each such family.
std::vector<std::string> drop_missing_families(std::vector<KernelCase>& cases, BenchDevice& device);

// Removes cases of slots without a kernel for the device. Returns the names of those slots.
std::vector<std::string> drop_unfilled(std::vector<KernelCase>& cases, DeviceType type);

// Adds feed-forward layers of width d, forward and backward in one: six GEMMs and the bias gradient
// sums, by each kernel family, and by the vendor's library with its own epilogues. dtype: bf16 or
// f16.
struct FfnSize {
  int64_t tokens = 0, width = 0;
};
void add_ffn(const FfnSize& size, DType dtype, DeviceType device, std::vector<KernelCase>& out);

}  // namespace shale::bench
