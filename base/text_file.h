#pragma once

#include <cstdint>
#include <string>

namespace shale {

// Reads a whole file of at most max_bytes. Throws MissingInputError if it does not exist, and
// DataError if it is larger, is a directory, or cannot be read.
std::string read_text_file(const std::string& path, int64_t max_bytes);

}  // namespace shale
