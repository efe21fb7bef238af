#pragma once

#include <map>
#include <string>
#include <vector>

#include "shale/bench/support/results.h"

// Reading the rows of benchmark documents, whoever wrote them.
namespace shale::bench {

double number(const Json& row, const char* key);     // 0 if there is none
std::string word(const Json& row, const char* key);  // empty if there is none; JSON if no string
// ", CUDA graphs, dependent launch": how a row of bench_train had kernels launched; empty if
// plainly.
std::string launches(const Json& row);
// ", own convolutions": of a document that was measured without cuDNN; else empty.
std::string convolutions(const Json& document);
// Of a row of a training step.
bool is_of_images(const Json& row);
std::string speed_text(const Json& row);  // "1234 tokens/s", "1234 images/s"
bool is_program(const Json& document, const char* name);

// What other programs made of the same work, from the rows of peers/kernels_gpu.py: the fastest of
// each case, by the case's name.
std::map<std::string, Json> fastest_rivals(const std::vector<Json>& documents);

// The name under which rivals measured a case of bench_kernels: without the family of kernels,
// "attention_fwd/causal/..." for "attention_fwd/hopper_causal/...", and "gemm/square/..." for
// "gemm/hopper_nt/...".
std::string name_for_rivals(const std::string& name);

// A section that sets what a GPU is judged by beside the fastest that other programs made of it: a
// row each, also for what was not measured. Empty without rows of bench_kernels on a GPU.
std::string figures_section(const std::vector<Json>& documents);

// A row for each rival, by the rows of peers/kernels_gpu.py: in how many cases it was measured, was
// the fastest, or failed, and why. A library that could not be imported is among them. Empty
// without such rows.
std::string rivals_section(const std::vector<Json>& documents);

// What was predicted of kernels (bench/predictions.json, a document among the others) beside what
// was measured. Empty without predictions.
std::string predictions_section(const std::vector<Json>& documents);

}  // namespace shale::bench
