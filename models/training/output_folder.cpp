#include "shale/models/training/output_folder.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "shale/base/error.h"
#include "shale/runtime/io/file.h"

namespace shale::models {

namespace fs = std::filesystem;

void make_folder(const std::string& folder) {
  Folder::make(folder);
  if (access(folder.c_str(), W_OK | X_OK) != 0) {
    throw DiskError(cat("output: cannot write to ", folder, ": ", std::strerror(errno)));
  }
}

std::string file_in(const std::string& folder, std::string_view name) {
  return (fs::path(folder) / name).string();
}

std::string fresh_file(const std::string& folder, const std::string& name) {
  make_folder(folder);
  const std::string path = file_in(folder, name + ".jsonl");
  if (!fs::exists(path)) return path;
  std::string kept;
  for (int i = 1; kept.empty() || fs::exists(kept); ++i) {
    kept = file_in(folder, cat(name, ".", i, ".jsonl"));
  }
  std::error_code error;
  fs::rename(path, kept, error);
  if (error) {
    throw DiskError(cat("output: cannot rename ", path, " to ", kept, ": ", error.message()));
  }
  return path;
}

}  // namespace shale::models
