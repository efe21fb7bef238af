#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace shale::test {

// A temporary folder, which the destructor removes.
class TempDir {
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ / name; }
  // Writes a new file and returns its path.
  std::string write(const std::string& name, std::string_view text) const;

 private:
  std::filesystem::path path_;
};

std::string read_file(const std::string& path);

}  // namespace shale::test
