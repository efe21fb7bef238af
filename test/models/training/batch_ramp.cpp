#include "shale/models/training/batch_ramp.h"

#include "shale/test/support/catch.h"

namespace shale::test {

TEST_CASE("a batch ramp is read phase by phase, and what is none is named", "[options]") {
  CHECK(models::parse_batch_ramp("").empty());
  const std::vector<BatchPhase> ramp = models::parse_batch_ramp("8:100,16:50");
  REQUIRE(ramp.size() == 2);
  CHECK(ramp[0].global_batch == 8);
  CHECK(ramp[0].end == 100);
  CHECK(ramp[1].global_batch == 16);
  CHECK(ramp[1].end == 150);
  for (const char* const wrong : {"8", "8:", ":8", "8:0", "0:8", "8:1.5", "-8:3", "8:3;9:4",
                                  "8:3,,9:4", "8:3,9", "1073741825:1", "a:b"}) {
    CAPTURE(wrong);
    CHECK(contains(message_of<ConfigError>([&] { models::parse_batch_ramp(wrong); }),
                   "expected BATCH:STEPS"));
  }
  std::string long_ramp = "1073741824:1073741824";
  for (int i = 0; i < 10; ++i) long_ramp += ",1073741824:1073741824";
  CHECK_THROWS_AS(models::parse_batch_ramp(long_ramp), ConfigError);
}

}  // namespace shale::test
