#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
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
  std::map<std::string, int64_t> binary = {};  // with a 0 byte, by BinaryKind::name
  int64_t data_bytes = 0;                      // bytes of files for shale.data, such as Parquet
  std::string data_kind = {};                  // kind of the first of these
  int64_t empty = 0;
  int64_t unreadable = 0;    // files and folders that cannot be read
  std::string problem = {};  // why the first of these cannot be read
  int64_t repeated = 0;      // further names (links) of a file that is read
  int64_t records = 0;       // .json files with objects that are not one per line
  int64_t not_utf8 = 0;      // not UTF-8, although the tokenizer requires it
  int64_t no_lines = 0;      // without JSON lines, although only these are read
  int64_t test = 0;          // marked `test`, while other files are for validation

  void add_binary(std::string_view start, int64_t bytes);  // start: first bytes of the file
  void add_unreadable(const std::string& what);
  // Returns "; skipped 2 Parquet, 1 unreadable (a.txt: Permission denied)"; "" if none is skipped.
  std::string describe() const;
  // Throws DataError, with the command that reads the folder, if it has more bytes of skipped data,
  // such as Parquet, than of text. text_bytes: without files that describe data.
  void require_text(const std::string& folder, int64_t text_bytes) const;
};

// Kind of a file that contains a 0 byte, by its first bytes.
struct BinaryKind {
  const char* name;          // such as "Parquet"; "binary" if it is not known
  std::string_view instead;  // what to do with such a file; empty for "binary"
  bool is_data = false;      // shale.data reads it (bindings/python/shale/data.py)
};
BinaryKind binary_kind(std::string_view start);
// Returns the error for a named file of this kind, with what to do.
std::string describe_binary(const std::string& path, const BinaryKind& kind);

// True for the names of files that describe a data set, such as README.md and dataset_info.json.
bool describes_data(std::string_view name);

// Regular files below a folder, sorted by the bytes of their names, which is the same order on
// every file system and in every locale. Skips names that begin with '.' and further names of the
// same file. Follows links to files, but not links to folders. Counts unreadable and repeated files
// in `skipped`.
std::vector<ListedFile> list_files(const std::string& root, SkippedFiles& skipped);

}  // namespace shale::data_internal
