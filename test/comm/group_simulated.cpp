#include "shale/comm/groups/group_simulated.h"

#include <string>
#include <vector>

#include "shale/base/error.h"
#include "shale/runtime/tensor/context.h"
#include "shale/test/support/catch.h"

namespace shale::comm {
namespace {

// Simulates rank 2 of five.
struct Simulated {
  Context context{{}};
  SimulatedGroup group{2, 5, context.backend()};
};

View view(std::vector<float>& values) {
  return make_view(values.data(), {static_cast<int64_t>(values.size())});
}

}  // namespace

TEST_CASE("the other ranks of a simulated group give what this one gives", "[comm]") {
  Simulated s;
  std::vector<float> sum = {1, -2};
  s.group.all_reduce_sum(view(sum));
  CHECK(sum == std::vector<float>{5, -10});
  s.group.all_reduce_max(view(sum));
  CHECK(sum == std::vector<float>{5, -10});
  s.group.broadcast(view(sum), 4);
  CHECK(sum == std::vector<float>{5, -10});

  std::vector<float> in = {0, 1, 2, 3, 4}, out = {0};
  s.group.reduce_scatter_sum(view(in), view(out));
  CHECK(out == std::vector<float>{10});
  s.group.all_gather(view(out), view(in));
  CHECK(in == std::vector<float>(5, 10));
  CHECK(s.group.gather_bytes("text", 1).empty());
  CHECK(s.group.gather_bytes("text", 2) == std::vector<std::string>(5, "text"));
  CHECK(s.group.broadcast_bytes("text", 2) == "text");
  s.group.set_broadcast("manifest", "of rank 0");
  CHECK(s.group.broadcast_bytes("", 0, "manifest") == "of rank 0");
  CHECK(s.group.all_gather_bytes("text") == std::vector<std::string>(5, "text"));
}

TEST_CASE("a simulated group counts calls, messages and bytes by tag", "[comm]") {
  Simulated s;
  std::vector<float> values(10);
  s.group.all_reduce_sum(view(values), {.tag = "sum", .async = true});
  s.group.barrier("end");
  const SimulatedCounts sum = s.group.counts().find("sum")->second;
  CHECK(sum.calls == 1);
  CHECK(sum.blocking == 0);
  CHECK(sum.messages == 6);  // three rounds up the tree and three rounds down
  CHECK(sum.sent_bytes == 2 * 0.8 * 40);
  CHECK(s.group.total().calls == 2);
  CHECK(s.group.total().blocking == 1);
  CHECK(s.group.traffic().totals().calls == 2);
  s.group.reset();
  CHECK(s.group.total().calls == 0);
}

TEST_CASE("a simulated group is split where the colors of all ranks are known", "[comm]") {
  Simulated s;
  const auto odd = s.group.split(std::vector<int>{0, 1, 0, 1, 0}, "even");
  CHECK(odd->rank() == 1);
  CHECK(odd->size() == 3);
  CHECK(s.group.split(0, s.group.rank(), "all")->size() == 5);
  CHECK(&odd->memory() == &s.group.memory());
  CHECK(&odd->memory() != &s.context.backend().host_memory());
  CHECK_THROWS_AS(s.group.split(std::vector<int>{0, 1}, "two"), InternalError);
}

TEST_CASE("values that a simulated group is told not to look at stay as they are", "[comm]") {
  Context context({});
  std::vector<float> seen = {1}, unseen = {1};
  SimulatedGroup group(0, 3, context.backend(),
                       {.has_values = [&](const View& x, const View&) { return x.data != unseen.data(); }});
  group.all_reduce_sum(view(seen));
  group.all_reduce_sum(view(unseen));
  CHECK(seen == std::vector<float>{3});
  CHECK(unseen == std::vector<float>{1});
  CHECK(group.total().calls == 2);
}

TEST_CASE("late collectives of a simulated group are done when they are waited for", "[comm]") {
  Context context({});
  SimulatedGroup group(0, 3, context.backend(), {.late = true});
  std::vector<float> values = {1};
  const Work work = group.all_reduce_sum(view(values), {.async = true});
  CHECK_FALSE(work.done());
  work.wait();
  CHECK(work.done());
  CHECK(values == std::vector<float>{3});
  CHECK(group.all_reduce_sum(view(values)).done());
  SimulatedGroup alone(0, 1, context.backend(), {.late = true});
  CHECK(alone.all_reduce_sum(view(values), {.async = true}).done());
}

TEST_CASE("links of a simulated group are there for its rank, and bring nothing", "[comm]") {
  Simulated s;
  const std::vector<LinkSpec> specs = {{.sender = 1, .receiver = 2, .capacity_bytes = 8},
                                       {.sender = 3, .receiver = 4, .capacity_bytes = 8}};
  const auto links = s.group.make_links(specs);
  REQUIRE(links[0] != nullptr);
  CHECK(links[1] == nullptr);
  std::vector<float> values = {1, 2};
  links[0]->receive(view(values), {}).wait();
  CHECK(values == std::vector<float>{1, 2});
}

TEST_CASE("a simulated group is of a rank among its ranks, and is not split", "[comm]") {
  Simulated s;
  CHECK_THROWS_AS(SimulatedGroup(5, 5, s.context.backend()), ConfigError);
  CHECK_THROWS_AS(SimulatedGroup(0, 0, s.context.backend()), ConfigError);
  CHECK_THROWS_AS(s.group.split(0, 0, "half"), UnavailableError);
}

}  // namespace shale::comm
