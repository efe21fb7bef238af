#include "shale/bench/support/gemm_tuner.h"

#include <algorithm>

#include "shale/test/support/catch.h"

namespace shale::test {
namespace {

using kernels::GemmClass;

TEST_CASE("the tuner writes a row of the table for each class", "[tune]") {
  const auto device = bench::make_bench_device({.type = DeviceType::kEmu, .arch = 90}, 2);
  const std::vector<GemmClass> classes = {{DType::kF32, false, true, 3, 4, 2},
                                          {DType::kBF16, true, false, 4, 3, 2}};
  int heard = 0;
  const std::string rows =
      bench::tune_gemm(*device, classes, 1e-6, [&](const std::string&) { ++heard; });
  CHECK(heard == 2);
  CHECK(std::ranges::count(rows, '\n') == 2);
  CHECK(contains(rows, "{{DType::kF32, false, true, 3, 4, 2}, GemmTile::k"));
  CHECK(contains(rows, "{{DType::kBF16, true, false, 4, 3, 2}, GemmTile::k"));
  // The emulator has no GEMM library to compare with.
  CHECK(contains(rows, ", 1, false, false},  // "));
  CHECK(contains(rows, "library none"));
}

TEST_CASE("the tuner's classes are all different", "[tune]") {
  const std::vector<GemmClass> classes = bench::tuned_classes();
  for (size_t i = 0; i < classes.size(); ++i) {
    CHECK(std::count(classes.begin() + long(i), classes.end(), classes[i]) == 1);
  }
}

TEST_CASE("the tuner refuses the CPU because it has no plans", "[tune]") {
  const auto cpu = bench::make_bench_device({.type = DeviceType::kCpu}, 1);
  CHECK(contains(message_of<ConfigError>([&] { bench::tune_gemm(*cpu, {}, 1e-6, nullptr); }),
                 "--tune"));
}

}  // namespace
}  // namespace shale::test
