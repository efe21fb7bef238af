#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace shale::data_internal {

enum class FileUse {
  kTrain,
  kValidation,
  kNone,  // of `test`, where other files are for validation
};

// What the words of a file's name, its path below what --data names, say of its use. A word is a
// run of letters, in any case. The words val, valid, validation and dev are for validation, else
// test is for no use. A file that --data names itself has the name "", which is for training.
FileUse use_of_name(std::string_view name);
// A folder, and of those in it the ones named `train`, or by a word that use_of_name() knows.
std::vector<std::string> folders_by_use(const std::string& folder);
// The use of each file by its name. Files of test are never for training: they are for validation
// if no other file is. Throws DataError, starting with `source`, if there are files and none of
// them is for training.
std::vector<FileUse> divide_files(const std::vector<std::string>& names, const std::string& source);

// The names of several paths: what follows the deepest folder that has them all. Of one path "".
std::vector<std::string> names_below_common_folder(const std::vector<std::string>& paths);

// A number of a document that is uniform in [0, 2^32), by its content alone: its CRC-32C and size.
uint32_t split_hash(uint32_t crc, int64_t bytes);
// Whether a document is for validation, where no file is.
bool is_held_out(uint32_t hash, double fraction);
// Whether each of several documents is. Copies are on one side. At least one is, unless the
// fraction is 0, and at least one is not; of documents that are all alike, none is.
std::vector<bool> hold_out(const std::vector<uint32_t>& hashes, double fraction);

}  // namespace shale::data_internal
