#pragma once

#include <functional>
#include <string>
#include <vector>

#include "shale/bench/support/bench_device.h"
#include "shale/kernels/gemm_plan.h"

namespace shale::bench {

// Returns the classes of kernels/gemm_table.inc for a GPU: GEMMs of transformers with 768 to 6144
// columns over 1024 to 32768 tokens, forward and backward, with vocabularies of 50304.
std::vector<kernels::GemmClass> tuned_classes();

// Times every plan for one GEMM in the middle of each class, with and without GELU, on `device` (a
// GPU or the emulator), for at least `seconds` each. Returns the table's rows: the best plan of the
// hand-written kernels, and whether the vendor's library is faster. Calls progress(row) for each
// row.
std::string tune_gemm(BenchDevice& device, const std::vector<kernels::GemmClass>& classes,
                      double seconds, const std::function<void(const std::string&)>& progress);

}  // namespace shale::bench
