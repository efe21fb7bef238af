#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "shale/base/json.h"

namespace shale {

// Purpose for which a JSON line is read.
enum class LineUse {
  kExample,  // train on it
  kPrompt,   // generate an answer; ignore keys that only affect training
};

// Counts unused keys of an object, such as "source", in `ignored`. Throws DataError for a key that
// other trainers would train on or use as a weight, such as "system", "images", "weight" or the
// text of another kind of line. Such a key is accepted if it is empty, if it requests the default
// ("weight": 1), or if it repeats the value of a key in `read`.
void check_line_keys(const Json& line, const std::vector<std::string_view>& read, LineUse use,
                     std::map<std::string, int64_t>& ignored);

// Returns true for null, "", [] and {}.
bool is_nothing(const Json& value);

}  // namespace shale
