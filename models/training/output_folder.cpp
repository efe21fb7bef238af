#include "shale/models/training/output_folder.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>

#include "shale/base/error.h"
#include "shale/runtime/io/file.h"

namespace shale::models {

namespace fs = std::filesystem;

void make_folder(const fs::path& folder) {
  Folder::make(folder.string());
  if (access(folder.c_str(), W_OK | X_OK) != 0) {
    throw DiskError(cat("output: cannot write to ", folder.string(), ": ", std::strerror(errno)));
  }
}

fs::path fresh_file(const fs::path& folder, const std::string& name) {
  make_folder(folder);
  const fs::path path = folder / (name + ".jsonl");
  if (!fs::exists(path)) return path;
  fs::path kept;
  for (int i = 1; kept.empty() || fs::exists(kept); ++i) {
    kept = folder / cat(name, ".", i, ".jsonl");
  }
  std::error_code error;
  fs::rename(path, kept, error);
  if (error) {
    throw DiskError(
        cat("output: cannot rename ", path.string(), " to ", kept.string(), ": ", error.message()));
  }
  return path;
}

}  // namespace shale::models
