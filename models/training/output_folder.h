#pragma once

#include <filesystem>

namespace shale::models {

// Makes the folder and its parents, which are on the disk when this returns: nothing that is kept
// in it can be lost with its name. Throws DiskError with path and reason unless it is there and
// files can be made in it.
void make_folder(const std::filesystem::path& folder);

// `folder`/metrics.jsonl for a new run; one that an earlier run left is kept as metrics.1.jsonl,
// .2, ...
std::filesystem::path fresh_metrics_file(const std::filesystem::path& folder);

}  // namespace shale::models
