#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace shale::data_internal {

enum class FileUse {
  kTrain,
  kValidation,
  kNone,  // `test`, if other files are for validation
};

// Use of a file, by the words of its name, which is its path below the --data path. A word is a run
// of letters; case does not matter. The words val, valid, validation and dev mean validation, else
// test means no use. A file that is the --data path itself has the name "", which means training.
FileUse use_of_name(std::string_view name);
// Returns the folder itself, and those of its subfolders whose name is `train` or has one of the
// words of use_of_name().
std::vector<std::string> folders_by_use(const std::string& folder);
// Returns the use of each file by its name. Files marked `test` are never used for training: they
// become validation files if there are no others. Throws DataError, which begins with `source`, if
// there are files but none for training.
std::vector<FileUse> divide_files(const std::vector<std::string>& names, const std::string& source);

// Returns names of several paths, relative to their deepest common folder; "" for a single path.
std::vector<std::string> names_below_common_folder(const std::vector<std::string>& paths);

// Returns the hash of a document's contents, uniform in [0, 2^32), from their CRC-32C and size.
uint32_t split_hash(uint32_t crc, int64_t bytes);
// Returns true if the document with this hash is for validation, when files are not marked by name.
bool is_held_out(uint32_t hash, double fraction);
// Marks documents for validation, by hash. Copies of a document are on the same side. Unless the
// fraction is 0, at least one document is for validation and at least one is not; if all documents
// are equal, none is for validation.
std::vector<bool> hold_out(const std::vector<uint32_t>& hashes, double fraction);

}  // namespace shale::data_internal
