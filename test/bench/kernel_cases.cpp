#include "bench/support/kernel_cases.h"

#include <algorithm>
#include <set>

#include "test/support/catch.h"

namespace shale::bench {
namespace {

std::vector<KernelCase> all_cases() { return kernel_cases({DType::kF32, DType::kBF16}); }

}  // namespace

TEST_CASE("every kernel has a row in bench_kernels", "[bench]") {
  std::set<std::string> slots;
  for (const KernelCase& one : all_cases()) slots.insert(one.slot);
  for (const kernels::SlotBase* slot : kernels::SlotBase::all()) {
    CAPTURE(slot->name());
    CHECK(slots.count(slot->name()) == 1);
  }
}

TEST_CASE("names of cases are unique and begin with their slot", "[bench]") {
  std::set<std::string> names;
  for (const KernelCase& one : all_cases()) {
    CAPTURE(one.name);
    CHECK(names.insert(one.name).second);
    CHECK(one.name.compare(0, one.slot.size() + 1, one.slot + "/") == 0);
  }
}

TEST_CASE("small cases run, on both sides where there are two", "[bench]") {
  const KernelBench bench(/*threads=*/2, /*rotation_bytes=*/1);
  int ran = 0;
  for (const KernelCase& one : all_cases()) {
    if (one.name.find("/nano/") == std::string::npos) continue;
    CAPTURE(one.name);
    const PreparedCase prepared = one.prepare(bench);
    CHECK(prepared.cost.bytes() > 0);
    CHECK((prepared.cost.flops > 0) ==
          (one.slot == "gemm" || one.slot.compare(0, 9, "attention") == 0));
    CHECK_NOTHROW(prepared.run());
    if (prepared.vendor) CHECK_NOTHROW(prepared.vendor());
    ++ran;
  }
  CHECK(ran > 50);
}

TEST_CASE("operands take turns until caches are full several times over", "[bench]") {
  const KernelBench bench(1, 1000);
  CHECK(bench.copies(100) == 10);
  CHECK(bench.copies(999) == 1);
  CHECK(bench.copies(5000) == 1);

  Operands operands;
  const View table = operands.shared("table", DType::kF32, {10});
  CHECK(operands.shared("table", DType::kF32, {10}).data == table.data);
  CHECK(operands.bytes() == 0);
  CHECK(operands.floats(DType::kBF16, {10}).data != table.data);
  CHECK(operands.bytes() == 20);
}

}  // namespace shale::bench
