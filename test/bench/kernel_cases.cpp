#include "shale/bench/support/kernel_cases.h"

#include <algorithm>
#include <set>

#include "shale/bench/support/measure.h"
#include "shale/test/support/catch.h"

namespace shale::bench {
namespace {

std::vector<KernelCase> all_cases(DeviceType type) {
  return kernel_cases(type, {DType::kF32, DType::kBF16});
}

// Runs all matching cases and returns their number.
int run_cases(BenchDevice& device, std::string_view part) {
  const KernelBench bench(device, /*rotation_bytes=*/1);
  std::vector<KernelCase> cases = all_cases(device.device().type);
  drop_unfilled(cases, device.device().type);
  int ran = 0;
  for (const KernelCase& one : cases) {
    if (one.name.find(part) == std::string::npos) continue;
    CAPTURE(one.name);
    const PreparedCase prepared = one.prepare(bench);
    CHECK(prepared.cost.bytes() > 0);
    CHECK((prepared.cost.flops > 0) ==
          (one.slot.ends_with("gemm") || one.slot.starts_with("conv") ||
           (one.slot.starts_with("attention") && one.slot != "attention_merge")));
    CHECK(measure(device, prepared, 0).ours.median() > 0);
    ++ran;
  }
  return ran;
}

}  // namespace

TEST_CASE("every kernel has a row in bench_kernels", "[bench]") {
  const DeviceType type = GENERATE(DeviceType::kCpu, DeviceType::kCuda, DeviceType::kEmu);
  std::set<std::string> slots;
  for (const KernelCase& one : all_cases(type)) slots.insert(one.slot);
  for (const kernels::SlotBase* slot : kernels::SlotBase::all()) {
    CAPTURE(slot->name());
    CHECK(slots.count(slot->name()) == 1);
  }
}

TEST_CASE("names of cases are unique and begin with their slot", "[bench]") {
  const DeviceType type = GENERATE(DeviceType::kCpu, DeviceType::kCuda, DeviceType::kEmu);
  std::set<std::string> names;
  for (const KernelCase& one : all_cases(type)) {
    CAPTURE(one.name);
    CHECK(names.insert(one.name).second);
    CHECK(one.name.compare(0, one.slot.size() + 1, one.slot + "/") == 0);
  }
}

TEST_CASE("small cases run, on both sides where there are two", "[bench]") {
  CHECK(run_cases(*make_bench_device({}, 2), "/nano/") > 50);
}

TEST_CASE("every emulated kernel can be timed", "[bench]") {
  CHECK(run_cases(*make_bench_device({.type = DeviceType::kEmu}, 2), "") > 3);
}

TEST_CASE("Hopper's kernels have rows beside the portable ones, and are timed on a Hopper",
          "[bench]") {
  const auto device = make_bench_device({.type = DeviceType::kEmu, .arch = 90}, 2);
  std::vector<KernelCase> cases = all_cases(DeviceType::kEmu);
  CHECK(drop_missing_families(cases, *device).empty());
  std::erase_if(cases, [](const KernelCase& c) { return c.family != KernelFamily::kHopper; });
  std::set<std::string> names;
  const KernelBench bench(*device, /*rotation_bytes=*/1);
  for (const KernelCase& one : cases) {
    names.insert(one.name);
    CAPTURE(one.name);
    CHECK(measure(*device, one.prepare(bench), 0).ours.median() > 0);
  }
  for (const char* name :
       {"attention_fwd/hopper_causal/d64/t40/bf16", "attention_bwd/hopper_causal/d128/t40/bf16",
        "gemm/hopper_nn/72/bf16", "gemm/hopper_nt/72/bf16", "gemm/hopper_tn/72/bf16",
        "gemm/hopper_ffn/d24/t40/bf16", "fp8_gemm/dw/tiny/bf16", "fp8_gemm/dx_tensor/tiny/bf16"}) {
    CAPTURE(name);
    CHECK(names.count(name) == 1);
  }
}

TEST_CASE("what a GPU is judged by has rows of every family", "[bench]") {
  std::set<std::string> names;
  for (const KernelCase& one : all_cases(DeviceType::kCuda)) names.insert(one.name);
  for (const std::string family : {"portable_", "hopper_"}) {
    for (const std::string name :
         {"causal/d128/t8192/bf16", "causal/d64/t1024/bf16", "causal/d64/t8192/bf16"}) {
      CAPTURE(family, name);
      CHECK(names.count("attention_fwd/" + family + name) == 1);
      CHECK(names.count("attention_bwd/" + family + name) == 1);
    }
    CHECK(names.count("gemm/" + family + "nt/8192/bf16") == 1);
  }
  for (const std::string family : {"portable_", "hopper_", "vendor_", ""}) {
    for (const std::string width : {"768", "1600", "4096"}) {
      CAPTURE(family, width);
      CHECK(names.count("gemm/" + family + "ffn/d" + width + "/t8192/bf16") == 1);
    }
  }
}

TEST_CASE("cases of a family that the device lacks are left out, and named", "[bench]") {
  const auto device = make_bench_device({.type = DeviceType::kEmu, .arch = 80}, 1);
  CHECK(missing_family(KernelFamily::kOfDevice, *device).empty());
  CHECK(missing_family(KernelFamily::kPortable, *device).empty());
  CHECK(test::contains(missing_family(KernelFamily::kHopper, *device), "emu:80 has 8.0"));
  CHECK(test::contains(missing_family(KernelFamily::kVendor, *device), "cuBLASLt"));
  std::vector<KernelCase> cases = all_cases(DeviceType::kEmu);
  const size_t before = cases.size();
  const std::vector<std::string> dropped = drop_missing_families(cases, *device);
  REQUIRE(dropped.size() == 1);
  CHECK(test::contains(dropped[0], cat(before - cases.size(), " of family hopper")));
  CHECK(std::ranges::none_of(
      cases, [](const KernelCase& c) { return c.family == KernelFamily::kHopper; }));
}

// An FFN on T tokens of width d has six GEMMs of 2 T 4 d^2 FLOP.
TEST_CASE("an FFN counts six products", "[bench]") {
  const auto device = make_bench_device({.type = DeviceType::kEmu, .arch = 90}, 1);
  const KernelBench bench(*device, /*rotation_bytes=*/1);
  for (const KernelCase& one : all_cases(DeviceType::kEmu)) {
    if (one.name != "gemm/ffn/d24/t40/bf16") continue;
    CHECK(one.prepare(bench).cost.flops == 6.0 * 2 * 40 * 4 * 24 * 24);
    return;
  }
  FAIL("there is no such case");
}

TEST_CASE("operands take turns until caches are full several times over", "[bench]") {
  const auto device = make_bench_device({}, 1);
  const KernelBench bench(*device, 1000);
  CHECK(bench.copies(100) == 10);
  CHECK(bench.copies(999) == 1);
  CHECK(bench.copies(5000) == 1);

  Operands operands(*device);
  const View table = operands.shared("table", DType::kF32, {10});
  CHECK(operands.shared("table", DType::kF32, {10}).data == table.data);
  CHECK(operands.bytes() == 0);
  CHECK(operands.floats(DType::kBF16, {10}).data != table.data);
  CHECK(operands.bytes() == 20);
}

}  // namespace shale::bench
