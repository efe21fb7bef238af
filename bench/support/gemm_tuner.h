#pragma once

#include <functional>
#include <string>
#include <vector>

#include "shale/bench/support/bench_device.h"
#include "shale/kernels/gemm_plan.h"

namespace shale::bench {

// What the classes of kernels/gemm_table.inc stand for on a GPU: the products of transformers of
// 768 to 6144 columns over 1024 to 32768 tokens, forward and backward, with vocabularies of 50304.
std::vector<kernels::GemmClass> tuned_classes();

// Times every plan for one product in the middle of each class, with and without GELU, on `device`
// (a GPU or the emulator), `seconds` each at least. Returns the rows of the table, those of the
// hand-written kernels' best plan and of whether the vendor's library beats it. progress(row) hears
// of each.
std::string tune_gemm(BenchDevice& device, const std::vector<kernels::GemmClass>& classes,
                      double seconds, const std::function<void(const std::string&)>& progress);

}  // namespace shale::bench
