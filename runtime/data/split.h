#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace shale::data_internal {

enum class FileUse {
  kTrain,
  kValidation,
  kNone,  // not used: its name contains `test`, and other files are for validation
};

// Returns the use of a file, by the words of its name. The name is its path below the --data path.
// A word is a run of letters in upper or lower case. The words val, valid, validation and dev mean
// validation; without these, test means no use. A file that is the --data path itself has the name
// "", which means training.
FileUse use_of_name(std::string_view name);
// Returns the folder, and those of its subfolders with the name `train` or with a word for
// use_of_name() in their name.
std::vector<std::string> folders_by_use(const std::string& folder);
// Returns the use of each file by its name. Files marked `test` are never used for training: they
// become validation files if there are no others. Throws DataError, which begins with `source`, if
// there are files but none for training.
std::vector<FileUse> divide_files(const std::vector<std::string>& names, const std::string& source);

// Returns names of several paths: the paths relative to their deepest common folder; "" for a
// single path.
std::vector<std::string> names_below_common_folder(const std::vector<std::string>& paths);

// Returns a hash of a document's contents, uniform in [0, 2^32). crc and bytes: CRC-32C and size of
// the document.
uint32_t split_hash(uint32_t crc, int64_t bytes);
// Returns true if the document with this hash is for validation. Used if file names do not mark
// validation data.
bool is_held_out(uint32_t hash, double fraction);
// Chooses documents for validation by their hashes. Equal documents are all for training or all for
// validation. Unless the fraction is 0, at least one document is for validation and at least one is
// not. If all documents are equal, none is for validation.
std::vector<bool> hold_out(const std::vector<uint32_t>& hashes, double fraction);

}  // namespace shale::data_internal
