#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
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
  int64_t parquet = 0;
  int64_t arrow = 0;
  int64_t binary = 0;  // others
  int64_t empty = 0;
  int64_t unreadable = 0;  // files and folders
  std::string problem = {};  // of the first of them
  int64_t repeated = 0;    // second names of a file
  int64_t records = 0;     // .json with objects that are not in lines
  int64_t not_utf8 = 0;    // where text becomes tokens of a tokenizer
  int64_t no_lines = 0;    // where lines of JSON are read, and there are none
  int64_t test = 0;        // files of test, where others are for validation

  void add_binary(std::string_view start);  // the first bytes of the file
  void add_unreadable(const std::string& what);
  // "; skipped 2 Parquet, 1 unreadable (a.txt: Permission denied)"; "" if nothing is left out.
  std::string describe() const;
};

// The kind of a file that has a byte 0: "Parquet", "Arrow", or "binary".
const char* binary_kind(std::string_view start);

// The regular files below a folder by the bytes of their names, which is one order on every file
// system and in every locale. Names that begin with '.' are left out, and so are second names of a
// file; links to files are followed, links to folders are not. Counts in `skipped` what is
// unreadable or repeated.
std::vector<ListedFile> list_files(const std::string& root, SkippedFiles& skipped);

}  // namespace shale::data_internal
