#include "shale/test/support/json.h"

#include <ostream>

#include "shale/base/text_file.h"

namespace shale {

std::ostream& operator<<(std::ostream& out, const Json& value) {
  return out << value.dump();
}

namespace test {

Json json_file(const std::string& path) {
  constexpr JsonLimits kLimits{.max_bytes = int64_t{1} << 30};
  return Json::parse(read_text_file(path, kLimits.max_bytes), kLimits, path);
}

}  // namespace test
}  // namespace shale
