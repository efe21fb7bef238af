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
// Returns ", own convolutions" if the document was measured without cuDNN, otherwise "".
std::string convolutions(const Json& document);
// Returns true for a training step on images.
bool is_of_images(const Json& row);
std::string speed_text(const Json& row);  // returns "1234 tokens/s" or "1234 images/s"
bool is_program(const Json& document, const char* name);

// Returns the fastest result of other programs for each case. key: name of the case in the rows of
// peers/kernels_gpu.py.
std::map<std::string, Json> fastest_rivals(const std::vector<Json>& documents);

// Returns the name that other programs use for a bench_kernels case. Removes the kernel family
// ("hopper_", "portable_", "vendor_"): "attention_fwd/hopper_causal/..." becomes
// "attention_fwd/causal/...". Replaces the layout "nt" by "square": "gemm/hopper_nt/..." becomes
// "gemm/square/...".
std::string name_for_rivals(const std::string& name);

// Makes a section that compares the main GPU figures with the fastest other program. It has a row
// for each figure, even if that was not measured. Empty if there are no rows of bench_kernels on a
// GPU.
std::string figures_section(const std::vector<Json>& documents);

// Makes a row for each other library from the rows of peers/kernels_gpu.py. It has the number of
// cases in which the library was measured, was fastest, or failed, and why. Includes libraries that
// could not be imported. Empty if there are no such rows.
std::string rivals_section(const std::vector<Json>& documents);

// Compares measurements with predictions for kernels (bench/predictions.json, one of the
// documents). Empty if there are no predictions.
std::string predictions_section(const std::vector<Json>& documents);

}  // namespace shale::bench
