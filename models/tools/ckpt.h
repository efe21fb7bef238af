#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "shale/base/config.h"
#include "shale/comm/checkpoint/manifest.h"

namespace shale::models::ckpt {

// The actions of `shale ckpt`.
int run_inspect(int argc, const char* const* argv);
int run_verify(int argc, const char* const* argv);
int run_reshard(int argc, const char* const* argv);
int run_export(int argc, const char* const* argv);
int run_diff(int argc, const char* const* argv);

// The folder of the checkpoint that `path` stands for: itself, if it has a manifest; else the
// newest in the folder of a run, or in its checkpoints/. Throws MissingInputError if there is none.
std::string find_checkpoint(const std::string& path);

// Prints what --help and the like ask for; true if that was all.
bool parse_or_print(ConfigSpec& spec, int argc, const char* const* argv);

// Rows of cells as lines with aligned columns. The first row is the head; a column whose name ends
// with a space is aligned to the right.
std::string make_table(const std::vector<std::vector<std::string>>& rows);

// "step 100, 444 tensors, 1.5 GiB in 4 files"
std::string summary(const CheckpointManifest& manifest);

// "1 file", "2 files"
std::string counted(int64_t count, std::string_view what);

}  // namespace shale::models::ckpt
