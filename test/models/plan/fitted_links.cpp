#include "shale/models/plan/time/fitted_links.h"

#include <fstream>
#include <string>
#include <vector>

#include "shale/base/error.h"
#include "shale/models/plan/time/cluster.h"
#include "shale/models/plan/time/kernel_times.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/fixtures.h"
#include "shale/test/support/temp_dir.h"

namespace shale::models {
namespace {

using comm::CollectiveOp;

std::vector<MeasuredTime> times_of(double latency_s, double bandwidth) {
  std::vector<MeasuredTime> times;
  for (double bytes = 4096; bytes <= 256 << 20; bytes *= 4) {
    times.push_back({.bytes = bytes, .seconds = latency_s + bytes / bandwidth});
  }
  return times;
}

FittedLink link_of(CollectiveOp op, int64_t ranks, int64_t stride) {
  return {.axis = "tensor",
          .op = op,
          .ranks = ranks,
          .stride = stride,
          .latency_s = 3e-6,
          .bandwidth = 20e9};
}

comm::CollectiveCall call_of(CollectiveOp op, int64_t bytes) {
  static char memory[1];
  const View whole = make_view(memory, DType::kF32, {bytes / 4});
  return {.op = op, .in = whole, .out = whole};
}

}  // namespace

TEST_CASE("a fit finds the latency and the bandwidth of what has them", "[plan]") {
  FittedLink link = link_of(CollectiveOp::kAllGather, 2, 1);
  CHECK(fit(link, times_of(12e-6, 7e9)) < 1e-9);
  CHECK(link.latency_s == Approx(12e-6).epsilon(1e-6));
  CHECK(link.bandwidth == Approx(7e9).epsilon(1e-6));
  // Short and long messages have equal weight. The error of the fit is returned.
  std::vector<MeasuredTime> uneven = times_of(12e-6, 7e9);
  for (size_t i = 0; i < uneven.size(); ++i) uneven[i].seconds *= i % 2 == 0 ? 1.1 : 0.9;
  const double worst = fit(link, uneven);
  CHECK(worst > 0.09);
  CHECK(worst < 0.2);
  CHECK(link.bandwidth == Approx(7e9).epsilon(0.1));
  // A fitted latency is never negative.
  std::vector<MeasuredTime> faster = {{1e3, 1e-7}, {1e6, 1.1e-3}, {1e7, 1.2e-2}};
  fit(link, faster);
  CHECK(link.latency_s == 0);
}

TEST_CASE("times that show no bandwidth are no fit", "[plan]") {
  FittedLink link = link_of(CollectiveOp::kAllGather, 2, 1);
  for (const std::vector<MeasuredTime>& times :
       {std::vector<MeasuredTime>{}, {{4096, 1e-6}}, {{4096, 1e-6}, {1 << 20, 1e-6}}}) {
    const std::string message = test::message_of<ConfigError>([&] { fit(link, times); });
    CHECK(test::contains(message, "all_gather of tensor: the larger message was not slower"));
  }
}

TEST_CASE("links are written as they are read", "[plan]") {
  const std::vector<FittedLink> links = {link_of(CollectiveOp::kAllReduceSum, 2, 1),
                                         link_of(CollectiveOp::kAllToAll, 4, 2)};
  const std::vector<FittedLink> again = read_links(to_json(links), "file");
  REQUIRE(again.size() == 2);
  CHECK(again[1].op == CollectiveOp::kAllToAll);
  CHECK(again[1].ranks == 4);
  CHECK(again[1].stride == 2);
  CHECK(again[1].axis == "tensor");
  CHECK(again[1].latency_s == Approx(3e-6));
  CHECK(again[1].bandwidth == Approx(20e9));
  struct Row {
    const char* json;
    const char* message;
  };
  for (const Row& row : {Row{"{}", "expected a list"},
                         {"[{}]", "links[0]"},
                         {"[1]", "links[0]"},
                         {R"([{"op": "shout"}])", "op is shout, expected one of all_reduce_sum"},
                         {R"([{"op": "gather", "speed": 1}])", "unknown field speed"},
                         {R"([{"op": "gather", "ranks": 1, "stride": 1, "latency_us": 1,
                               "gbytes_per_s": 1}])",
                          "expected ranks of 2 or more"}}) {
    CAPTURE(row.json);
    const std::string message = test::message_of<ConfigError>(
        [&] { read_links(Json::parse(row.json, {}, "row"), "file"); });
    CHECK(test::contains(message, "file: links[0]"));
    CHECK(test::contains(message, row.message));
  }
}

TEST_CASE("groups that were measured go by their fit, others by the cluster's figures", "[plan]") {
  const test::TempDir folder;
  const std::string path = folder.file("cluster.json");
  const std::string shipped = test::fixture_path("../../deploy/clusters/h100.json");
  Cluster cluster = read_cluster(shipped);
  CHECK(cluster.links.empty());
  std::string text((std::istreambuf_iterator<char>(std::ifstream(shipped).rdbuf())), {});
  text.insert(
      text.rfind('}'),
      ", \"links\": " + to_json(std::vector{link_of(CollectiveOp::kAllGather, 2, 4)}).dump());
  std::ofstream(path) << text;
  cluster = read_cluster(path);
  REQUIRE(cluster.links.size() == 1);
  const auto spread = [&](std::vector<int> ranks) { return spread_of(cluster, ranks); };
  const auto seconds = [&](CollectiveOp op, const std::vector<int>& ranks) {
    return collective_seconds(cluster, call_of(op, 20'000'000), spread(ranks));
  };
  CHECK(seconds(CollectiveOp::kAllGather, {1, 5}) == Approx(1.003e-3));
  CHECK(basis_of(cluster, CollectiveOp::kAllGather, spread({1, 5})) == Basis::kFitted);
  for (const std::vector<int>& ranks : {std::vector{0, 1}, {0, 4, 8}, {0, 4, 6}}) {
    CHECK(seconds(CollectiveOp::kAllGather, ranks) < 0.9e-3);
    CHECK(basis_of(cluster, CollectiveOp::kAllGather, spread(ranks)) == Basis::kExtrapolated);
  }
  CHECK(basis_of(cluster, CollectiveOp::kBroadcast, spread({1, 5})) == Basis::kExtrapolated);
}

TEST_CASE("figures that no machine has are refused, so that plans are finite", "[plan]") {
  const test::TempDir dir;
  const std::string path = dir.file("cluster.json");
  const auto read_with = [&](const std::string& name, const std::string& value) {
    Json cluster = {{"device", "x"},     {"memory_gbytes_per_s", 1000}, {"bf16_tflops", 100},
                    {"fp32_tflops", 50}, {"node_gbytes_per_s", 10},     {"network_gbytes_per_s", 1},
                    {"power_w", 1},      {"network_latency_us", 1}};
    cluster[name] = Json::parse(value, {}, "value");
    std::ofstream(path) << cluster.dump();
    return read_cluster(path);
  };
  const auto complaint = [&](const std::string& name, const std::string& value) {
    return test::message_of<ConfigError>([&] { read_with(name, value); });
  };
  CHECK(read_with("power_w", "0").power_w == 0);
  for (const char* name : {"memory_gbytes_per_s", "bf16_tflops", "node_gbytes_per_s", "power_w",
                           "network_latency_us", "host_gbytes_per_s"}) {
    CAPTURE(name);
    CHECK(test::contains(complaint(name, "1e-320"), "expected"));
    CHECK(test::contains(complaint(name, "1e308"), "expected a number"));
  }
  CHECK(test::contains(complaint("links", R"([{"op": "all_gather", "ranks": 2, "stride": 1,
                                               "latency_us": 1, "gbytes_per_s": 1e-320}])"),
                       "a bandwidth of 1e-6 to 1e9"));
}

}  // namespace shale::models
