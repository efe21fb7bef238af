#include "bench/support/report.h"

#include "test/support/catch.h"

namespace shale::bench {
namespace {

using test::contains;

Json train_document(const char* dtype, int ranks, int threads, int batch, double step_ms,
                    double floor_share, int zero = 0) {
  const double tokens_per_s = double(batch) * 256 / step_ms * 1e3;
  return {{"program", "bench_train"},
          {"machine", {{"cpu", "Some CPU"}, {"cores", 2}, {"load", 0.25}}},
          {"rows",
           {{{"kind", "step"},
             {"model", "gpt2-124m"},
             {"dtype", dtype},
             {"ranks", ranks},
             {"threads", threads},
             {"seq_len", 256},
             {"micro_batch", 4},
             {"global_batch", batch},
             {"zero", zero},
             {"exposed_comm_ms", step_ms / 16},
             {"step_ms", step_ms},
             {"step_ms_min", step_ms},
             {"tokens_per_s", tokens_per_s},
             {"floor_ms", 1},
             {"floor_share", floor_share},
             {"memory", {{"sum", 100}, {"peak_reserved", 105}}}},
            {{"kind", "part"},
             {"phase", "forward"},
             {"name", "gemm"},
             {"calls", 49},
             {"ms", 500.0},
             {"share", 0.5},
             {"gflop", 100.0},
             {"gbytes", 0.0}}}}};
}

}  // namespace

TEST_CASE("targets are met or missed by the measured numbers", "[bench]") {
  const std::string page = results_page(
      {train_document("fp32", 1, 2, 4, 1600, 0.79), train_document("bf16", 1, 2, 4, 800, 0.7),
       train_document("fp32", 1, 2, 8, 1000, 0.8), train_document("fp32", 2, 1, 8, 1250, 0.8)},
      {.commit = "abc1234"});
  CHECK(contains(page, "| at least 0.80 | 0.790 | missed |"));
  CHECK(contains(page, "| bf16 tokens/s / fp32 tokens/s | at least 1.60 | 2.000 | met |"));
  CHECK(contains(page, "| at least 0.95 | 0.800 | missed |"));
  CHECK(contains(page, "| at most 1.10 | 1.050 | met |"));
  CHECK(contains(page, "| CPU | Some CPU, 2 CPUs |"));
  CHECK(contains(page, "| commit | abc1234 |"));
}

TEST_CASE("sharded stages stand beside stage 0", "[bench]") {
  const std::string page = results_page(
      {train_document("fp32", 2, 1, 8, 1000, 0.8), train_document("fp32", 2, 1, 8, 1040, 0.8, 2),
       train_document("fp32", 2, 1, 8, 1040, 0.8, 3)},
      {});
  CHECK(contains(
      page, "| 2 ranks, zero 2: step time / that of zero 0 | at most 1.00 | 1.040 | missed |"));
  CHECK(contains(page,
                 "| 2 ranks, zero 3: step time / that of zero 0 | at most 1.05 | 1.040 | met |"));
  CHECK(contains(
      page, "| 2 ranks, zero 3: exposed communication / step | at most 0.05 | 0.062 | missed |"));
  CHECK(contains(page, ", 2 x 1, zero 3 | 1040.0 |"));
}

TEST_CASE("of several runs of one configuration the fastest counts", "[bench]") {
  const std::string page = results_page(
      {train_document("fp32", 1, 2, 4, 1600, 0.7), train_document("fp32", 1, 2, 4, 1500, 0.85)},
      {});
  CHECK(contains(page, "| 1500.0 |"));
  CHECK_FALSE(contains(page, "| 1600.0 |"));
}

TEST_CASE("a part's speed is its work over its time", "[bench]") {
  const std::string page = results_page({train_document("fp32", 1, 2, 4, 1000, 0.8)}, {});
  CHECK(contains(page, "| forward gemm | 49 | 500.00 | 50.0% | 200.0 |  |"));
}

TEST_CASE("collectives show both kinds of memory and MPI in one line", "[bench]") {
  const auto row = [](const char* impl, const char* memory, double ms) {
    return Json{{"op", "all_reduce"}, {"impl", impl},  {"memory", memory},
                {"ranks", 2},         {"bytes", 1024}, {"time_ms", ms}};
  };
  const Json document = {
      {"rows",
       {row("shale", "group", 2.0), row("shale", "any", 4.0), row("mpi_plain", "any", 5.0)}}};
  const std::string page = results_page({document}, {});
  CHECK(contains(page, "| all_reduce, 2 ranks, 1.0 KiB | 2.000 | 4.000 | 5.000 | 2.50 | 1.25 |"));
}

TEST_CASE("a GPU kernel stands beside its fastest rival of the same name", "[bench]") {
  const auto row = [](const char* name, const char* impl, double us) {
    return Json{{"name", name},      {"impl", impl}, {"time_us", us},
                {"time_us_min", us}, {"speed", 1.5}, {"unit", "TB/s"}};
  };
  const Json ours = {
      {"program", "bench_kernels"},
      {"options", {{"device", "cuda:0"}, {"vendor", "CUDA"}, {"peaks", {{"copy_gb_s", 4000.0}}}}},
      {"rows", {row("norm/a", "shale", 10), row("norm/b", "shale", 20)}}};
  const Json peers = {{"program", "peer_kernels"},
                      {"rows",
                       {row("norm/a", "slow", 30),
                        row("norm/a", "fast", 8),
                        {{"name", "norm/b"}, {"error", "cannot"}}}}};
  const std::string page = results_page({ours, peers}, {});
  CHECK(contains(page, "| norm/a | 10.00 | 10.00 | 1.500 TB/s |  |  |  | fast | 8.000 | 80.0% |"));
  CHECK(contains(page, "| norm/b | 20.00 | 20.00 | 1.500 TB/s |  |  |  |  |  |  |"));
  CHECK(contains(page, "On the GPU"));
}

TEST_CASE("no target is claimed without its measurement", "[bench]") {
  CHECK_FALSE(contains(results_page({}, {}), "Targets"));
}

}  // namespace shale::bench
