#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "shale/comm/checkpoint/manifest.h"

namespace shale::models::ckpt {

// Actions of `shale ckpt`.
int run_inspect(int argc, const char* const* argv);
int run_verify(int argc, const char* const* argv);
int run_reshard(int argc, const char* const* argv);
int run_export(int argc, const char* const* argv);
int run_diff(int argc, const char* const* argv);

// Returns the folder of a checkpoint: `path` itself if it has a manifest, else the newest
// checkpoint in the folder of a run or in its checkpoints/. Throws MissingInputError if there is
// none.
std::string find_checkpoint(const std::string& path);

// Writes the image or diffusion model at `path` to an ONNX file, for `shale ckpt export --to onnx`.
void export_to_onnx(const std::string& path, bool ema, const std::string& out);

// Formats a table with aligned columns. The first row is the header; a column whose header ends
// with a space is right-aligned.
std::string make_table(const std::vector<std::vector<std::string>>& rows);

// Returns a text such as "step 100, 444 tensors, 1.5 GiB in 4 files".
std::string summary(const CheckpointManifest& manifest);

// Returns a count with its noun, in the plural if it is not 1: "1 file", "2 files".
std::string counted(int64_t count, std::string_view what);

}  // namespace shale::models::ckpt
