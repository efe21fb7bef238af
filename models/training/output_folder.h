#pragma once

#include <string>
#include <string_view>

namespace shale::models {

// Makes the folder and its parents, which are on the disk when this returns: nothing that is kept
// in it can be lost with its name. Throws DiskError with path and reason unless it is there and
// files can be made in it.
void make_folder(const std::string& folder);

// Path of the file `name` in `folder`.
std::string file_in(const std::string& folder, std::string_view name);

// `folder`/NAME.jsonl for a new run; one that an earlier run left is kept as NAME.1.jsonl, .2, ...
std::string fresh_file(const std::string& folder, const std::string& name);

}  // namespace shale::models
