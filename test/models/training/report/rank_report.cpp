#include "shale/models/training/report/rank_report.h"

#include <cmath>
#include <cstdlib>

#include "shale/base/error.h"
#include "shale/comm/world.h"
#include "shale/runtime/ops/linear.h"
#include "shale/runtime/tensor/tensor.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/op_check.h"

namespace shale::models {
namespace {

using test::contains;

RanksMetrics two_axes(double most_all, double most_shard) {
  return {.step = 40,
          .ranks = 4,
          .figures = {
              {"comm_exposed_share_all", Spread{.median = 0.1, .most = most_all, .most_rank = 2}},
              {"comm_exposed_share_shard", Spread{.median = 0, .most = most_shard, .most_rank = 1}},
              {"comm_in_flight_share_all", std::nullopt},
              {"device_peak_bytes", Spread{1 << 20, 2 << 20, 3 << 20, 3, 1}}}};
}

}  // namespace

TEST_CASE("a spread names the lowest of the ranks that have the least and the most") {
  CHECK(spread_of(std::vector<double>{3, 1, 2, 1, 3}) ==
        Spread{.least = 1, .median = 2, .most = 3, .least_rank = 1, .most_rank = 0});
  CHECK(spread_of(std::vector<double>{4, 1}) ==
        Spread{.least = 1, .median = 2.5, .most = 4, .least_rank = 1, .most_rank = 0});
  CHECK(spread_of(std::vector<double>{7}) == Spread{7, 7, 7, 0, 0});
  CHECK_FALSE(spread_of(std::vector<double>{1, NAN, 2}).has_value());
  CHECK_FALSE(spread_of({}).has_value());
}

TEST_CASE("the table has a line for each figure that is known") {
  const std::string table = rank_table(two_axes(0.4, 0.2));
  CHECK(contains(table, "device_peak_bytes"));
  CHECK(contains(table, "1.0 MiB (3)"));
  CHECK(contains(table, "40% (2)"));
  CHECK_FALSE(contains(table, "in_flight"));
  CHECK(rank_table({.step = 1, .ranks = 1}).empty());
}

TEST_CASE("a rank's memory, and the share of its time in kernels, are measured") {
  comm::World world(0, nullptr);
  const auto group = world.group();
  Context context(test::small_context(1));
  RankReport report(context, *group, {{"all", group.get()}});
  const auto figure = [&](const RanksMetrics& all, const std::string& name) {
    REQUIRE(all.figures.at(name).has_value());
    return all.figures.at(name)->most;
  };
  const Tensor x = test::random_leaf(context, {512, 512}, 1);
  const auto start = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - start < std::chrono::milliseconds(200)) linear(x, x);
  const RanksMetrics busy = report.gather(1);
  CHECK(busy.ranks == 1);
  CHECK(figure(busy, "device_busy_share") > 0.5);
  CHECK(figure(busy, "device_busy_share") <= 1);
  const MemoryStats stats = context.allocator().stats();
  CHECK(figure(busy, "device_peak_bytes") == double(stats.peak_reserved));
  CHECK(figure(busy, "device_fragmentation") ==
        Approx(1 - double(stats.peak_allocated) / double(stats.peak_reserved)));
  CHECK(figure(busy, "host_peak_bytes") > 1 << 20);
  CHECK(figure(busy, "comm_exposed_share_all") == 0);

  const auto idle_since = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - idle_since < std::chrono::milliseconds(50)) {
  }
  CHECK(figure(report.gather(2), "device_busy_share") < 0.2);
  CHECK(figure(report.gather_whole_run(2), "device_busy_share") > 0.3);
}

TEST_CASE("NVML says how busy, hot and full a GPU is, and what it draws") {
  setenv("SHALE_NVML", SHALE_TEST_NVML, 1);
  comm::World world(0, nullptr);
  const auto group = world.group();
  Context context(test::small_context(1));
  const auto figures_of = [&](const char* gpu) {
    RankReport report(context, *group, {{"all", group.get()}}, std::make_unique<GpuSensors>(gpu));
    return report.gather(1).figures;
  };
  auto figures = figures_of("0000:17:00.0");
  CHECK(figures.at("device_busy_share")->most == Approx(0.96));
  CHECK(figures.at("device_watts")->most == Approx(612.5));
  CHECK(figures.at("device_celsius")->most == 61);
  CHECK(gpu_identity("0000:17:00.0").model == "NVIDIA H100 80GB HBM3");
  CHECK(gpu_identity("0000:65:00.0").driver == "580.65.06");
  CHECK_THROWS_AS(gpu_identity("0000:00:00.0"), UnavailableError);
  CHECK(figures.at("device_used_bytes")->most == double(int64_t{70} << 30));
  figures = figures_of("0000:65:00.0");
  CHECK_FALSE(figures.at("device_watts").has_value());
  CHECK_FALSE(figures.at("device_nccl_share").has_value());
  CHECK(figures.at("device_celsius")->most == 91);
  CHECK(contains(test::message_of<UnavailableError>([] { GpuSensors("0000:99:00.0"); }),
                 "nvmlDeviceGetHandleByPciBusId_v2: Not Found"));
  CHECK(GpuSensors::of({}) == nullptr);
}

#ifdef SHALE_TEST_CUPTI
TEST_CASE("CUPTI says for how long NCCL's kernels ran") {
  // SHALE_CUPTI is not set, so NCCL's time is not measured.
  CHECK(NcclTime::of({DeviceType::kCuda, 0}) == nullptr);
  setenv("SHALE_CUPTI", "/nowhere/libcupti.so", 1);
  CHECK(contains(test::message_of<UnavailableError>([] { NcclTime(); }), "/nowhere/libcupti.so"));
  setenv("SHALE_CUPTI", SHALE_TEST_CUPTI, 1);
  CHECK(NcclTime::of({}) == nullptr);
  {
    const std::unique_ptr<NcclTime> time = NcclTime::of({DeviceType::kCuda, 0});
    REQUIRE(time != nullptr);
    // Kernels of 4, 2.5 and 0.5 ms, of which two overlap for 2 ms.
    CHECK(time->seconds() == Approx(0.005));
    CHECK(time->seconds() == Approx(0.010));
    // CUPTI has one user at a time.
    CHECK(contains(test::message_of<UnavailableError>([] { NcclTime(); }),
                   "cuptiActivityEnable: multiple subscribers"));
    // The same failure is only a warning here.
    CHECK(NcclTime::of({DeviceType::kCuda, 0}) == nullptr);
  }
  setenv("SHALE_NVML", SHALE_TEST_NVML, 1);
  comm::World world(0, nullptr);
  const auto group = world.group();
  Context context(test::small_context(1));
  RankReport report(context, *group, {}, std::make_unique<GpuSensors>("0000:17:00.0"),
                    std::make_unique<NcclTime>());
  CHECK(report.gather(1).figures.at("device_nccl_share")->most > 0);
}
#endif

TEST_CASE("GPUs that are idle, wait, are hot or uneven are warnings, by rank, once per kind") {
  const double gib = 1 << 30;
  RanksMetrics metrics{.ranks = 2,
                       .figures = {{"device_busy_share", Spread{.least = 0.95, .most = 0.99}},
                                   {"device_celsius", Spread{.least = 60, .most = 70}},
                                   {"comm_exposed_share_all", Spread{.most = 0.1}},
                                   {"device_used_bytes", Spread{.least = gib, .most = gib}}}};
  GpuWarnings given;
  CHECK(gpu_warnings(metrics, given).empty());
  RanksMetrics hot = metrics;
  hot.figures["device_celsius"]->most = 90;
  CHECK(gpu_warnings(hot, given).size() == 1);
  metrics.figures["device_busy_share"] = Spread{.least = 0.6, .most = 0.9, .least_rank = 1};
  metrics.figures["device_celsius"]->most = 90;
  metrics.figures["comm_exposed_share_all"]->most = 0.3;
  metrics.figures["device_used_bytes"]->most = 2 * gib;
  // The report before this one has warned of heat.
  const auto others = gpu_warnings(metrics, given);
  REQUIRE(others.size() == 3);
  CHECK(contains(others[2], "2.0 GiB in use"));
  CHECK(gpu_warnings(metrics, given).empty());
  given = {};
  const auto warnings = gpu_warnings(metrics, given);
  REQUIRE(warnings.size() == 4);
  CHECK(contains(warnings[0], "GPU of rank 1 was busy for 60% of the time, expected 90% or more"));
  CHECK(contains(warnings[1], "waited for collectives for 30% of the time"));
  CHECK(contains(warnings[2], "has 90 degrees"));
  CHECK(contains(warnings[3], "2.0 GiB in use, that of rank 0 1.0 GiB"));
  CHECK(contains(rank_table(metrics), "90 C (0)"));
  // Ranks on CPUs, which have no warnings about GPUs.
  given = {};
  CHECK(gpu_warnings(two_axes(0.4, 0.2), given).empty());
}

}  // namespace shale::models
