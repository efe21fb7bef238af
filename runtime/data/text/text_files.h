#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace shale::data_internal {

// A file in a data folder.
struct ListedFile {
  std::string name;  // relative to the folder, with '/' as separator
  std::string path;
  int64_t bytes = 0;
  std::pair<dev_t, ino_t> identity;
};

// Numbers of files in a folder that are skipped, by reason.
struct SkippedFiles {
  int64_t parquet = 0;
  int64_t arrow = 0;
  int64_t binary = 0;  // binary files of other types
  int64_t empty = 0;
  int64_t unreadable = 0;    // files and folders that cannot be read
  std::string problem = {};  // why the first of these cannot be read
  int64_t repeated = 0;      // further names (links) of a file that is read
  int64_t records = 0;       // .json files with objects that are not one per line
  int64_t not_utf8 = 0;      // not UTF-8, although the tokenizer requires it
  int64_t no_lines = 0;      // without JSON lines, although only these are read
  int64_t test = 0;          // marked `test`, while other files are for validation

  void add_binary(std::string_view start);  // start: first bytes of the file
  void add_unreadable(const std::string& what);
  // Returns "; skipped 2 Parquet, 1 unreadable (a.txt: Permission denied)"; "" if none is skipped.
  std::string describe() const;
};

// Kind of a file that contains a 0 byte, by its first bytes.
struct BinaryKind {
  const char* name;     // "Parquet", "Arrow", "GGUF", "safetensors", or "binary"
  const char* instead;  // what to do with such a file; empty for "binary"
};
BinaryKind binary_kind(std::string_view start);

// Regular files below a folder, sorted by the bytes of their names, which is the same order on
// every file system and in every locale. Skips names that begin with '.' and further names of the
// same file. Follows links to files, but not links to folders. Counts unreadable and repeated files
// in `skipped`.
std::vector<ListedFile> list_files(const std::string& root, SkippedFiles& skipped);

}  // namespace shale::data_internal
