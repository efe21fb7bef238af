#include "shale/comm/watch/recent_collectives.h"

#include <optional>

#include "shale/test/support/catch.h"

namespace shale::comm {
namespace {

Fingerprint call(uint64_t sequence) {
  const View view = make_view(static_cast<float*>(nullptr), {0});
  return fingerprint(
      {.op = CollectiveOp::kAllReduceSum, .in = view, .out = view, .tag = "blocks.3"}, sequence);
}

}  // namespace

TEST_CASE("the last eight collectives are kept, the newest first, and what runs is told apart") {
  RecentCollectives recent;
  CHECK(recent.describe_all().empty());
  for (uint64_t k = 0; k < 20; ++k) {
    const RecentCollectives::Scope scope(recent, "world", call(k), 4096);
  }
  const RecentCollectives::Scope running(recent, "a name that is longer than there is room for",
                                         call(20), 1);
  const auto entries = recent.newest_first();
  REQUIRE(entries.size() == 8);
  CHECK(entries.front().running);
  for (size_t i = 0; i < entries.size(); ++i) CHECK(entries[i].call.sequence == 20 - i);
  const auto lines = recent.describe_all();
  CHECK(test::contains(lines[0], "running for 0.0 s: all_reduce_sum 20 of fp32[0] for 'blocks.3'"));
  CHECK(test::contains(lines[1], "ended 0.0 s ago: all_reduce_sum 19"));
  CHECK(test::contains(lines[1], "4.0 KiB, group 'world'"));
}

TEST_CASE("a collective that ends after its place was given away changes nothing") {
  RecentCollectives recent;
  std::optional<RecentCollectives::Scope> old;
  old.emplace(recent, "world", call(0), 0);
  std::optional<RecentCollectives::Scope> newest;
  for (uint64_t k = 1; k <= 8; ++k) newest.emplace(recent, "world", call(k), 0);
  old.reset();
  CHECK(recent.newest_first().front().running);
}

TEST_CASE("a listener hears of each collective when it has ended") {
  RecentCollectives recent;
  std::vector<RecentCollectives::Entry> heard;
  { const RecentCollectives::Scope before(recent, "world", call(0), 1); }
  recent.listen([&heard](const RecentCollectives::Entry& entry) { heard.push_back(entry); });
  {
    const RecentCollectives::Scope scope(recent, "shard", call(7), 4096, 3);
    CHECK(heard.empty());
  }
  recent.listen({});
  { const RecentCollectives::Scope after(recent, "world", call(8), 1); }
  REQUIRE(heard.size() == 1);
  CHECK(std::string(heard[0].group.data()) == "shard");
  CHECK(heard[0].call.sequence == 7);
  CHECK(heard[0].bytes == 4096);
  CHECK(heard[0].first_rank == 3);
  CHECK(heard[0].begun <= heard[0].ended);
}

}  // namespace shale::comm
