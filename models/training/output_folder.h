#pragma once

#include <filesystem>
#include <string>

namespace shale::models {

// Makes the folder and its parents, which are on the disk when this returns: nothing that is kept
// in it can be lost with its name. Throws DiskError with path and reason unless it is there and
// files can be made in it.
void make_folder(const std::filesystem::path& folder);

// `folder`/NAME.jsonl for a new run; one that an earlier run left is kept as NAME.1.jsonl, .2, ...
std::filesystem::path fresh_file(const std::filesystem::path& folder, const std::string& name);

}  // namespace shale::models
