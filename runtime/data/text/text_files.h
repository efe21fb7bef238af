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
  std::string name;  // path relative to the folder, with '/' as separator
  std::string path;
  int64_t bytes = 0;
  std::pair<dev_t, ino_t> identity;
};

// Files of a folder that are skipped: their number, by reason.
struct SkippedFiles {
  std::map<std::string, int64_t> binary = {};  // files with a 0 byte: BinaryKind::name -> number
  int64_t data_bytes = 0;      // bytes of files that shale.data can read, such as Parquet
  std::string data_kind = {};  // kind of the first file that shale.data can read
  int64_t empty = 0;
  int64_t unreadable = 0;    // files and folders that cannot be read
  std::string problem = {};  // reason why the first unreadable one cannot be read
  int64_t repeated = 0;      // other names (links) of files that are read
  int64_t records = 0;       // .json files with objects that are not one per line
  // files that are skipped because they are not UTF-8, which the tokenizer requires
  int64_t not_utf8 = 0;
  int64_t no_lines = 0;  // files that are skipped because they have no JSON lines
  // files that are skipped because their name says `test` and others are for validation
  int64_t test = 0;

  void add_binary(std::string_view start, int64_t bytes);  // start: first bytes of the file
  void add_unreadable(const std::string& what);
  // Returns a text such as "; skipped 2 Parquet, 1 unreadable (a.txt: Permission denied)". Returns
  // "" if no file was skipped.
  std::string describe() const;
  // Throws DataError if the folder has more bytes of skipped data, such as Parquet, than of text.
  // The message has the command that reads the folder. text_bytes: bytes of text without files such
  // as README.md that describe the data.
  void require_text(const std::string& folder, int64_t text_bytes) const;
};

// Kind of a file that contains a 0 byte. Its first bytes show the kind.
struct BinaryKind {
  const char* name;          // name such as "Parquet"; "binary" if the kind is unknown
  std::string_view instead;  // advice: what to do with such a file; empty for "binary"
  bool is_data = false;      // true: shale.data can read it (bindings/python/shale/data.py)
};
BinaryKind binary_kind(std::string_view start);
// Returns the error message for a file of this kind that the user named. It contains the advice.
std::string describe_binary(const std::string& path, const BinaryKind& kind);

// True for the names of files that describe a data set, such as README.md and dataset_info.json.
bool describes_data(std::string_view name);

// Returns the regular files below a folder, sorted by the bytes of their names. This order is the
// same on every file system and in every locale. Skips names that begin with '.' and other names of
// the same file. Follows links to files, but not links to folders. Counts unreadable and repeated
// files in `skipped`.
std::vector<ListedFile> list_files(const std::string& root, SkippedFiles& skipped);

}  // namespace shale::data_internal
