#pragma once

#include <string>
#include <vector>

#include "shale/bench/support/bench_device.h"
#include "shale/runtime/kernel_check/operands.h"

namespace shale::bench {

// Returns cases of every slot for each dtype. On the CPU they have the sizes of GPT-2 124M with
// 1024 and 2048 tokens, and of the small model "nano". On a GPU they have 16384 tokens; there are
// also sizes at which GPU libraries are compared. On the emulator they are tiny. A test checks that
// every slot has a case.
std::vector<KernelCase> kernel_cases(DeviceType type, const std::vector<DType>& dtypes);

// Returns why the device has no kernels of that family; empty if it has some.
std::string missing_family(KernelFamily family, BenchDevice& device);

// Removes cases of families that the device lacks. Returns a line for each such family.
std::vector<std::string> drop_missing_families(std::vector<KernelCase>& cases, BenchDevice& device);

// Removes cases of slots without a kernel for the device. Returns the names of those slots.
std::vector<std::string> drop_unfilled(std::vector<KernelCase>& cases, DeviceType type);

// Adds cases of feed-forward layers of width d, with forward and backward in one case: six GEMMs,
// and the sums of the bias gradients. There is a case for each kernel family, and one for the
// vendor's library with its own epilogues. dtype: bf16 or f16.
struct FfnSize {
  int64_t tokens = 0, width = 0;
};
void add_ffn(const FfnSize& size, DType dtype, DeviceType device, std::vector<KernelCase>& out);

}  // namespace shale::bench
