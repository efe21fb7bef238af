#include <chrono>
#include <sstream>
#include <thread>

#include "shale/comm/mesh.h"
#include "shale/models/training/report/rank_report.h"
#include "shale/models/training/report/warnings_file.h"
#include "shale/runtime/tensor/tensor.h"
#include "shale/test/support/json.h"
#include "shale/test/support/op_check.h"
#include "shale/test/support/ranks/harness.h"
#include "shale/test/support/ranks/tiny_run.h"

namespace shale::test {

using models::RankReport;

TEST_CASE("a slow rank is the one that waits least, on the axis over which the others wait") {
  const auto group = world().group({.timeout_s = 60});
  const int ranks = group->size();
  if (ranks % 2 != 0) return;
  comm::Mesh mesh(*group, {{"replica", 0}, {"shard", 2}});
  Context context(small_context(1));
  RankReport report(
      context, *group,
      {{"all", group.get()}, {"shard", &mesh.group("shard")}, {"replica", &mesh.group("replica")}});
  group->barrier();
  report.begin();
  std::vector<float> values(1000);
  const View view = make_view(values.data(), {1000});
  const bool slow = group->rank() == ranks - 1;
  if (slow) std::this_thread::sleep_for(std::chrono::milliseconds(300));
  mesh.group("shard").all_reduce_sum(view, {.async = true}).wait();
  const RanksMetrics all = report.gather(7);

  CHECK(all.step == 7);
  CHECK(all.ranks == ranks);
  const auto spread = [&](const std::string& name) {
    REQUIRE(all.figures.at(name).has_value());
    return *all.figures.at(name);
  };
  const Spread exposed = spread("comm_exposed_share_shard");
  CHECK(exposed.most_rank == ranks - 2);  // the rank that waits for the slow one
  CHECK(exposed.most > 0.3);
  CHECK(exposed.most <= 1);
  CHECK(exposed.least < 0.3);
  CHECK(spread("comm_in_flight_share_shard").most_rank == ranks - 2);
  CHECK(spread("comm_in_flight_share_shard").most > 0.3);
  CHECK(spread("comm_exposed_share_replica").most == 0);
  CHECK(spread("comm_exposed_share_all").most >= exposed.most);
}

TEST_CASE("the rank with the most memory is named") {
  const auto group = world().group({.timeout_s = 60});
  Context context(small_context(1));
  RankReport report(context, *group, {});
  const int64_t mib = int64_t{1} << 20;
  const Tensor mine = zeros(context, {(1 + 8 * group->rank()) * 4 * mib}, DType::kU8);
  const RanksMetrics all = report.gather(1);
  const Spread memory = *all.figures.at("device_peak_bytes");
  CHECK(memory.least_rank == 0);
  CHECK(memory.most_rank == group->size() - 1);
  CHECK(memory.most - memory.least >= double(32 * mib * (group->size() - 1)));
}

TEST_CASE("warnings of ranks that warn at once are whole lines in one file") {
  const auto group = world().group({.timeout_s = 60});
  const SharedDir dir(*group);
  constexpr int kLines = 40;
  {
    models::WarningsFile file(group->rank());
    file.open(dir / "warnings.jsonl");
    group->barrier();
    for (int i = 0; i < kLines; ++i) file.write(LogLevel::kWarning, std::string(500, 'x'));
  }
  group->barrier();
  if (group->rank() != 0) return;
  std::istringstream lines(read_file(dir / "warnings.jsonl"));
  std::vector<int> count(size_t(group->size()));
  for (std::string line; std::getline(lines, line);) {
    const Json row = Json::parse(line, {}, "warnings");
    CHECK(row["text"].get<std::string>().size() == 500);
    ++count[row["rank"].get<size_t>()];
  }
  for (const int each : count) CHECK(each == kLines);
}

}  // namespace shale::test
