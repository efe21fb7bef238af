#include "shale/comm/parallel/data/data_parallel_checks.h"

#include "shale/test/support/catch.h"

namespace shale::test {
namespace {

bool in_order(const std::vector<std::string>& hosts) { return comm::adds_in_rank_order(hosts); }

}  // namespace

TEST_CASE("sums are in rank order if each host has the same power of two of consecutive ranks") {
  CHECK(in_order({"a"}));
  CHECK(in_order({"a", "a", "a", "a"}));
  CHECK(in_order({"a", "b", "c", "d"}));
  CHECK(in_order({"b", "b", "a", "a"}));
  CHECK_FALSE(in_order({"a", "b", "a", "b"}));
  CHECK_FALSE(in_order({"a", "b", "b", "a"}));
  CHECK_FALSE(in_order({"a", "a", "a", "b"}));
  CHECK_FALSE(in_order({"a", "a", "a", "b", "b", "b"}));
}

}  // namespace shale::test
