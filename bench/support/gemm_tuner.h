#pragma once

#include <functional>
#include <string>
#include <vector>

#include "shale/bench/support/bench_device.h"
#include "shale/kernels/gemm_plan.h"

namespace shale::bench {

// Returns the classes of GEMMs in kernels/gemm_table.inc for a GPU. They occur in forward and
// backward of transformers with 768 to 6144 columns, 1024 to 32768 tokens and vocabularies of
// 50304.
std::vector<kernels::GemmClass> tuned_classes();

// Finds the best plans for GEMMs. For one GEMM in the middle of each class, with and without GELU,
// times every plan on `device` (a GPU or the emulator), for at least `seconds` each. Returns the
// table's rows: the best plan of the hand-written kernels, and whether the vendor's library is
// faster. Calls progress(row) for each row.
std::string tune_gemm(BenchDevice& device, const std::vector<kernels::GemmClass>& classes,
                      double seconds, const std::function<void(const std::string&)>& progress);

}  // namespace shale::bench
