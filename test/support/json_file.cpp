#include "shale/test/support/json_file.h"

#include "shale/base/text_file.h"

namespace shale::test {

Json json_file(const std::string& path) {
  constexpr JsonLimits kLimits{.max_bytes = int64_t{1} << 30};
  return Json::parse(read_text_file(path, kLimits.max_bytes), kLimits, path);
}

}  // namespace shale::test
