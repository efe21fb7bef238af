#pragma once

#include <string>
#include <string_view>

namespace shale::models {

// Creates the folder and its parents and syncs them to the disk, so that a crash cannot lose the
// folders with the files in them. Throws DiskError with path and reason unless the folder then
// exists and files can be created in it.
void make_folder(const std::string& folder);

// Returns the path of the file `name` in `folder`.
std::string file_in(const std::string& folder, std::string_view name);

// Returns `folder`/NAME.jsonl for a new run. Renames a file of an earlier run to NAME.1.jsonl, .2,
// ...
std::string fresh_file(const std::string& folder, const std::string& name);

}  // namespace shale::models
