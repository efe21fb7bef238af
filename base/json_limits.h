#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace shale {

// What a JSON text from outside may look like.
struct JsonLimits {
  int64_t max_bytes = int64_t{1} << 20;
  int max_depth = 64;  // arrays and objects inside each other
  // Keys, strings, numbers, lists, objects...: a tree of them is many times as large as the text.
  int64_t max_values = int64_t{1} << 22;
};

// Throws DataError, starting with `source` (a path), unless `text` is one JSON document within the
// limits: valid UTF-8, no key twice in one object, nothing behind it, no number beyond double.
// Parsers that build a tree take the last of two equal keys and recurse or allocate as deep as the
// text says, so a text that nobody vouches for passes here first.
void check_json(std::string_view text, const JsonLimits& limits, std::string_view source);

// The whole file, at most max_bytes of it. Throws MissingInputError if it does not exist, DataError
// if it is larger, a directory, or cannot be read.
std::string read_text_file(const std::string& path, int64_t max_bytes);

}  // namespace shale
