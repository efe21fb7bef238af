#pragma once

#include <map>
#include <string>
#include <vector>

#include "shale/bench/support/results.h"

// Access to the rows of benchmark documents of any program.
namespace shale::bench {

double number(const Json& row, const char* key);     // 0 if missing
std::string word(const Json& row, const char* key);  // empty if missing; JSON if not a string
// Returns ", CUDA graphs, dependent launch": the launch modes of a bench_train row; empty for plain
// launches.
std::string launches(const Json& row);
// Returns ", own convolutions" for a document measured without cuDNN; else empty.
std::string convolutions(const Json& document);
// Returns true for a training step on images.
bool is_of_images(const Json& row);
std::string speed_text(const Json& row);  // "1234 tokens/s", "1234 images/s"
bool is_program(const Json& document, const char* name);

// Returns the fastest result of other programs for each case, from rows of peers/kernels_gpu.py, by
// the case's name.
std::map<std::string, Json> fastest_rivals(const std::vector<Json>& documents);

// Returns the rivals' name of a bench_kernels case: without the kernel family,
// "attention_fwd/causal/..." for "attention_fwd/hopper_causal/...", and "gemm/square/..." for
// "gemm/hopper_nt/...".
std::string name_for_rivals(const std::string& name);

// Makes a section that compares the main GPU figures with the fastest rival: a row for each figure,
// even if not measured. Empty without rows of bench_kernels on a GPU.
std::string figures_section(const std::vector<Json>& documents);

// Makes a row for each rival from the rows of peers/kernels_gpu.py: the number of cases in which it
// was measured, was fastest, or failed, and why. Includes libraries that could not be imported.
// Empty without such rows.
std::string rivals_section(const std::vector<Json>& documents);

// Compares predictions for kernels (bench/predictions.json, one of the documents) with
// measurements. Empty without predictions.
std::string predictions_section(const std::vector<Json>& documents);

}  // namespace shale::bench
