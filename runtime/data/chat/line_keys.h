#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "shale/base/json.h"

namespace shale {

// What a line of JSON is read for.
enum class LineUse {
  kExample,  // to train on all of it
  kPrompt,   // to answer it: keys that only say what is learnt are ignored
};

// Counts in `ignored` the keys of an object besides those that were read, such as its source. Throws
// DataError for a key that other trainers would train on or weigh the example by, such as `system`,
// `images`, `weight` or the text of another kind of line. Such a key passes if it is empty, asks for
// what is done anyway ("weight": 1), or repeats a text or messages under a key that was read.
void check_line_keys(const Json& line, const std::vector<std::string_view>& read, LineUse use,
                     std::map<std::string, int64_t>& ignored);

// Null, "", [] or {}: a member that says nothing.
bool is_nothing(const Json& value);

}  // namespace shale
