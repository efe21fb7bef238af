#pragma once

#include <map>
#include <string>
#include <vector>

#include "shale/bench/support/results.h"

// Functions that read rows of benchmark documents of any program.
namespace shale::bench {

double number(const Json& row, const char* key);  // returns 0 if the key is missing
// Returns the value of a key: empty if it is missing, JSON text if it is not a string.
std::string word(const Json& row, const char* key);
// Returns the launch modes of a bench_train row, such as ", CUDA graphs, dependent launch"; empty
// for plain launches.
std::string launches(const Json& row);
// Returns ", own convolutions" for a document that was measured without cuDNN; else empty.
std::string convolutions(const Json& document);
// Returns true for a training step on images.
bool is_of_images(const Json& row);
std::string speed_text(const Json& row);  // returns "1234 tokens/s" or "1234 images/s"
bool is_program(const Json& document, const char* name);

// Returns the fastest result of other programs for each case, from rows of peers/kernels_gpu.py, by
// the name of the case.
std::map<std::string, Json> fastest_rivals(const std::vector<Json>& documents);

// Returns the name that other programs use for a bench_kernels case. Removes the kernel family
// ("hopper_", "portable_", "vendor_"): "attention_fwd/hopper_causal/..." becomes
// "attention_fwd/causal/...". Replaces the layout "nt" by "square": "gemm/hopper_nt/..." becomes
// "gemm/square/...".
std::string name_for_rivals(const std::string& name);

// Makes a section that compares the main GPU figures with the fastest other program: a row for each
// figure, even if not measured. Empty without rows of bench_kernels on a GPU.
std::string figures_section(const std::vector<Json>& documents);

// Makes a row for each other library from the rows of peers/kernels_gpu.py: the number of cases in
// which the library was measured, was fastest, or failed, and why. Includes libraries that could
// not be imported. Empty without such rows.
std::string rivals_section(const std::vector<Json>& documents);

// Compares predictions for kernels (bench/predictions.json, one of the documents) with
// measurements. Empty without predictions.
std::string predictions_section(const std::vector<Json>& documents);

}  // namespace shale::bench
