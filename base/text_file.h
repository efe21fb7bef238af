#pragma once

#include <cstdint>
#include <string>

namespace shale {

// The whole file, at most max_bytes of it. Throws MissingInputError if it does not exist, DataError
// if it is larger, a directory, or cannot be read.
std::string read_text_file(const std::string& path, int64_t max_bytes);

}  // namespace shale
