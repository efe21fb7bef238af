#include "shale/models/training/checks/bandwidth_check.h"

#include <string>
#include <string_view>

#include "shale/base/host_name.h"
#include "shale/base/log.h"
#include "shale/test/support/ranks/harness.h"

namespace shale::test {

TEST_CASE("an all-reduce that is slower than expected is one warning, which names a rank") {
  Context context({});
  const auto group = world().group({.timeout_s = 60});
  const auto warning = [&](double expected_bytes_per_s) {
    std::string heard;
    process_log().listen([&heard](LogLevel, std::string_view text) { heard += text; });
    models::check_bandwidth(*group, context, world(), expected_bytes_per_s);
    process_log().listen({});
    return heard;
  };
  CHECK(warning(1).empty());
  const std::string text = warning(1e15);
  CAPTURE(text);
  CHECK(text.empty() == (group->rank() > 0 || group->size() == 1));
  if (text.empty()) return;
  for (const std::string& part :
       {std::string("all-reduce of "), cat(" over ", group->size(), " ranks: "),
        std::string(", expected at least "), std::string("; slowest to receive: rank "),
        cat(" on ", host_name(), ", ")}) {
    CHECK(contains(text, part));
  }
}

}  // namespace shale::test
