#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace shale::data_internal {

// A file of a folder of data.
struct ListedFile {
  std::string name;  // relative to the folder, '/' between parts
  std::string path;
  int64_t bytes = 0;
  std::pair<dev_t, ino_t> identity;
};

// What of a folder is not read.
struct SkippedFiles {
  int64_t binary = 0;
  int64_t empty = 0;
  int64_t unreadable = 0;  // files and folders
  int64_t repeated = 0;    // second names of a file
  int64_t not_utf8 = 0;    // where text becomes tokens of a tokenizer
};

// The regular files below a folder by the bytes of their names, which is one order on every file
// system and in every locale. Names that begin with '.' are left out, and so are second names of a
// file; links to files are followed, links to folders are not. Counts in `skipped` what is
// unreadable or repeated.
std::vector<ListedFile> list_files(const std::string& root, SkippedFiles& skipped);

}  // namespace shale::data_internal
