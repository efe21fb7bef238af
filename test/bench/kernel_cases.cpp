#include "bench/support/kernel_cases.h"

#include <algorithm>
#include <set>

#include "bench/support/measure.h"
#include "test/support/catch.h"

namespace shale::bench {
namespace {

std::vector<KernelCase> all_cases(DeviceType type) {
  return kernel_cases(type, {DType::kF32, DType::kBF16});
}

// Runs what matches; returns how many cases did.
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
          (one.slot == "gemm" || one.slot.compare(0, 9, "attention") == 0));
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
