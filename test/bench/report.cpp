#include "shale/bench/support/report.h"

#include "shale/bench/support/report_rows.h"
#include "shale/test/support/catch.h"

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

TEST_CASE("sharded stages are compared with stage 0", "[bench]") {
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

TEST_CASE("a GPU kernel is compared with its fastest rival of the same name", "[bench]") {
  const auto row = [](const char* name, const char* impl, double us) {
    return Json{{"name", name},      {"impl", impl}, {"time_us", us},
                {"time_us_min", us}, {"speed", 1.5}, {"unit", "TB/s"}};
  };
  const Json ours = {
      {"program", "bench_kernels"},
      {"options", {{"device", "cuda:0"}, {"vendor", "CUDA"}, {"peaks", {{"copy_gb_s", 4000.0}}}}},
      {"rows",
       {row("norm/a", "shale", 10),
        row("norm/b", "shale", 20),
        {{"name", "norm/c"}, {"error", "refused"}}}}};
  const Json peers = {{"program", "peer_kernels"},
                      {"rows",
                       {row("norm/a", "slow", 30),
                        row("norm/a", "fast", 8),
                        {{"name", "norm/b"}, {"error", "cannot"}}}}};
  const std::string page = results_page({ours, peers}, {});
  CHECK(contains(page, "| norm/a | 10.00 | 10.00 | 1.500 TB/s |  |  |  | fast | 8.000 | 80.0% |"));
  CHECK(contains(page, "| norm/b | 20.00 | 20.00 | 1.500 TB/s |  |  |  |  |  |  |"));
  CHECK(contains(page, "On the GPU"));
  CHECK(contains(page, "\nFailed:\n\n* norm/c: refused\n"));
  CHECK_FALSE(contains(page, "| norm/c"));
}

namespace {

Json gpu_kernels(const Json& rows) {
  return {{"program", "bench_kernels"},
          {"options", {{"device", "cuda:0"}, {"vendor", "CUDA"}, {"peaks", Json::object()}}},
          {"rows", rows}};
}

Json timed(const char* name, double us, double gflop, const char* family = "device") {
  return {{"name", name}, {"time_us", us},     {"time_us_min", us}, {"gflop", gflop},
          {"speed", 1.0}, {"unit", "TFLOP/s"}, {"family", family}};
}

Json gpu_step(const char* program, const char* model, double ms) {
  return {{"program", program},
          {"rows",
           {{{"kind", "step"},
             {"impl", "pytorch-2"},
             {"mode", "compile"},
             {"model", model},
             {"device", "cuda:0"},
             {"dtype", "bf16"},
             {"seq_len", 1024},
             {"global_batch", 128},
             {"step_ms", ms},
             {"tokens_per_s", 131072 / ms * 1e3},
             {"memory", {{"sum", 100}, {"peak_reserved", 105}}}}}}};
}

}  // namespace

TEST_CASE("figures set Hopper's kernels beside the fastest rival", "[bench]") {
  Json product = timed("gemm/hopper_nt/8192/bf16", 1500, 1099.5);
  product["vendor_us"] = 1400;
  Json ffn = timed("gemm/hopper_ffn/d768/t8192/bf16", 400, 232);
  ffn["vendor_us"] = 500;
  const Json ours =
      gpu_kernels({timed("attention_fwd/hopper_causal/d128/t8192/bf16", 900, 549.8),
                   timed("attention_fwd/causal/d128/t8192/bf16", 800, 549.8), product, ffn,
                   timed("gemm/vendor_ffn/d768/t8192/bf16", 450, 232, "vendor")});
  const Json peers = {{"program", "peer_kernels"},
                      {"rows",
                       {{{"name", "attention_fwd/causal/d128/t8192/bf16"},
                         {"impl", "cudnn"},
                         {"time_us", 990},
                         {"gflop", 549.8}},
                        {{"name", "gemm/ffn/d768/t8192/bf16"},
                         {"impl", "eager"},
                         {"time_us", 600},
                         {"gflop", 232}}}}};
  const std::string page = results_page({ours, peers, gpu_step("bench_train", "gpt2-124m", 300),
                                         gpu_step("peer_gpt2", "gpt2-124m", 330)},
                                        {});
  CHECK(contains(page, "## Compared with other libraries"));
  CHECK(contains(page,
                 "heads of 128, T 8192, B 2, H 16, causal | "
                 "attention_fwd/hopper_causal/d128/t8192/bf16 | 900.0 us | 610.9 TFLOP/s | "
                 "cudnn | 990.0 us | 555.4 TFLOP/s | 110.0% |"));
  CHECK(contains(page,
                 "| GEMM of 8192 x 8192 x 8192 | gemm/hopper_nt/8192/bf16 | 1500 us | "
                 "733.0 TFLOP/s | cuBLASLt | 1400 us | 785.4 TFLOP/s | 93.3% |"));
  CHECK(contains(page, "| cuBLASLt, epilogues apart | 450.0 us | 515.6 TFLOP/s | 112.5% |"));
  CHECK(contains(page,
                 "| training step, gpt2-124m, T 1024, 131072 tokens | bench_train bf16 | "
                 "300.0 ms | 436907 tokens/s | pytorch-2 compile | 330.0 ms | "
                 "397188 tokens/s | 110.0% |"));
  Json dependent = gpu_step("bench_train", "gpt2-124m", 200);
  dependent["rows"][0]["dependent_launch"] = true;
  CHECK(
      contains(results_page({ours, dependent}, {}), "bench_train bf16, dependent launch | 200.0"));
  // The page lists a requested measurement that is missing.
  CHECK(contains(page, "| training step, gpt2-1558m, T 1024, 131072 tokens |  | not measured |"));
  CHECK_FALSE(contains(results_page({peers}, {}), "Compared with other libraries"));
}

TEST_CASE("image steps on a GPU are compared with PyTorch's, with and without cuDNN", "[bench]") {
  const auto step = [](const char* program, double ms, const char* cudnn) {
    Json document = gpu_step(program, "resnet50", ms);
    Json& row = document["rows"][0];
    row["kind"] = "image_step";
    row.erase("seq_len");
    row["pixels"] = 224;
    row["images_per_s"] = 128 / ms * 1e3;
    document["machine"] = {{"cpu", "Some CPU"}, {"cudnn", cudnn}};
    return document;
  };
  const Json by_cudnn = step("bench_train", 50, "/a/libcudnn.so.9");
  const Json own = step("bench_train", 80, "off");
  const std::string page = results_page(
      {gpu_kernels(Json::array({timed("a", 1, 1)})), own, by_cudnn, step("peer_images", 60, "")},
      {});
  CHECK(
      contains(page,
               "| training step, resnet50, 224 pixels, 128 images | bench_train bf16 | 50.00 ms | "
               "2560 images/s | pytorch-2 compile | 60.00 ms | 2133 images/s | 120.0% |"));
  CHECK(contains(page, "| training step, vit-b16, 224 pixels, 128 images |  | not measured |"));
  CHECK(contains(page, ", 224 pixels, micro-batch , batch 128,  x , own convolutions | 80.0 |"));
  CHECK(contains(page, ", 224 pixels, micro-batch , batch 128,  x  | 50.0 |"));
}

TEST_CASE("a GEMM of a kernel family is compared with the square GEMM", "[bench]") {
  CHECK(name_for_rivals("gemm/hopper_nt/8192/bf16") == "gemm/square/8192/bf16");
  CHECK(name_for_rivals("gemm/portable_tn/4096/fp32") == "gemm/tn/4096/fp32");
  CHECK(name_for_rivals("gemm/vendor_ffn/d768/t8192/bf16") == "gemm/ffn/d768/t8192/bf16");
  CHECK(name_for_rivals("attention_fwd/hopper_causal/d64/t40/bf16") ==
        "attention_fwd/causal/d64/t40/bf16");
  CHECK(name_for_rivals("copy/flat/bf16") == "copy/flat/bf16");
}

TEST_CASE("each rival has a row, measured, failed or missing", "[bench]") {
  const auto timed = [](const char* name, const char* impl, double us) {
    return Json{{"name", name}, {"impl", impl}, {"version", "2.1"}, {"time_us", us}};
  };
  const auto failed = [](const char* name, const char* impl, const char* error) {
    return Json{{"name", name}, {"impl", impl}, {"error", error}};
  };
  const Json first = {
      {"program", "peer_kernels"},
      {"rows",
       {failed("some_library", "missing", "cannot be imported: no module"), timed("a", "fast", 8),
        timed("a", "slow", 30), timed("b", "slow", 30), failed("b", "fast", "out of memory")}}};
  // If a case fails in one run and succeeds in another, it does not count as failed.
  const Json second = {
      {"program", "peer_kernels"},
      {"rows", {timed("b", "fast", 50), failed("c", "fast", "no such head size | 96")}}};
  const std::string page = results_page({first, second}, {});
  CHECK(contains(page, "## Rivals"));
  CHECK(contains(page, "| missing |  | 0 | 0 | 1 | some_library: cannot be imported: no module |"));
  CHECK(contains(page, "| fast | 2.1 | 2 | 1 | 1 | c: no such head size \\| 96 |"));
  CHECK(contains(page, "| slow | 2.1 | 2 | 1 | 0 |  |"));
  CHECK_FALSE(contains(results_page({}, {}), "## Rivals"));
}

TEST_CASE("a step that another program could not take says why", "[bench]") {
  const Json peers = {
      {"program", "peer_gpt2"},
      {"rows", {{{"impl", "pytorch-2"}, {"mode", "compile"}, {"error", "out of memory"}}}}};
  CHECK(contains(results_page({peers}, {}),
                 "## The same step in other programs\n\nFailed:\n\n"
                 "* pytorch-2 compile: out of memory\n"));
}

TEST_CASE("predictions are compared with measurements", "[bench]") {
  const Json ours =
      gpu_kernels({timed("a", 1000, 600), timed("b", 1000, 700), timed("d", 1000, 500)});
  const auto predicted = [](const char* name) {
    return Json{{"name", name}, {"tflops_low", 550.0}, {"tflops_high", 650.0}, {"why", "cycles"}};
  };
  const Json withdrawn = {{"name", "d"}, {"why", "no published figure"}};
  const Json predictions = {{"program", "predictions"},
                            {"rows", {predicted("a"), predicted("b"), predicted("c"), withdrawn}}};
  const std::string page = results_page({ours, predictions}, {});
  CHECK(contains(page, "| a | 550 to 650 TFLOP/s | 600.0 | 100.0% | cycles |"));
  CHECK(contains(page, "| b | 550 to 650 TFLOP/s | 700.0 | 116.7%, above | cycles |"));
  CHECK(contains(page, "| c | 550 to 650 TFLOP/s | not measured |  | cycles |"));
  CHECK(contains(page, "| d | withdrawn | 500.0 |  | no published figure |"));
  CHECK_FALSE(contains(results_page({ours}, {}), "Predicted"));
}

TEST_CASE("rivals are looked up without the family of our kernels", "[bench]") {
  CHECK(name_for_rivals("gemm/hopper_ffn/d768/t8192/bf16") == "gemm/ffn/d768/t8192/bf16");
  CHECK(name_for_rivals("attention_fwd/portable_causal/d64/t1024/bf16") ==
        "attention_fwd/causal/d64/t1024/bf16");
  CHECK(name_for_rivals("attention_fwd/causal/16384/bf16") == "attention_fwd/causal/16384/bf16");
}

TEST_CASE("a breakdown shows each part in the step, alone and at its floor", "[bench]") {
  Json step = gpu_step("bench_train", "gpt2-124m", 100)["rows"][0];
  step["kind"] = "breakdown_step";
  step["step_over_alone"] = 1.05;
  const Json part = {{"kind", "breakdown"}, {"name", "FFN up, forward"}, {"calls", 12},
                     {"ms", 10.0},          {"alone_ms", 8.0},           {"floor_ms", 5.0},
                     {"share", 0.1}};
  const Json gaps = {{"kind", "breakdown"}, {"name", "gaps"}, {"ms", 2.0}, {"share", 0.02}};
  const std::string page =
      results_page({{{"program", "bench_train"}, {"rows", {step, part, gaps}}}}, {});
  CHECK(contains(page, "is 1.050 times the sum of its parts alone"));
  CHECK(contains(page,
                 "| bf16 step on cuda:0: time / sum of its parts alone | at most 1.08 | "
                 "1.050 | met |"));
  CHECK(contains(page, "gpt2-124m bf16 on cuda:0"));
  CHECK(contains(page, "| FFN up, forward | 12 | 10.00 | 8.00 | 1.25 | 5.00 | 50.0% | 10.0% |"));
  CHECK(contains(page, "| gaps |  | 2.00 |  |  |  |  | 2.0% |"));
}

TEST_CASE("no target is claimed without its measurement", "[bench]") {
  CHECK_FALSE(contains(results_page({}, {}), "Targets"));
}

}  // namespace shale::bench
