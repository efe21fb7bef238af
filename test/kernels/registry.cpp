#include "shale/kernels/registry.h"

#include "shale/base/error.h"
#include "shale/kernels/elementwise.h"
#include "shale/kernels/gemm.h"
#include "shale/kernels/slot.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/kernels.h"

namespace shale {

TEST_CASE("every kernel slot has a CPU entry", "[kernels][registry]") {
  REQUIRE_FALSE(test::devices().empty());  // its first call registers them
  REQUIRE_FALSE(kernels::SlotBase::all().empty());
  for (const kernels::SlotBase* slot : kernels::SlotBase::all()) {
    CAPTURE(slot->name());
    CHECK(slot->filled(DeviceType::kCpu));
  }
}

TEST_CASE("an unfilled slot throws an error that names op and device", "[kernels][registry]") {
  // A slot of one's own would join the list for good, which other tests look at; no build has a
  // kernel for a device type without number, so ask an existing slot for a device it lacks.
  for (const DeviceType type : {DeviceType::kCuda, DeviceType::kEmu}) {
    if (kernels::gemm.filled(type)) continue;
    const Exec exec = {.device = {.type = type, .index = 1, .arch = 80}};
    const std::string message =
        test::message_of<UnavailableError>([&] { kernels::gemm(exec, kernels::GemmArgs{}); });
    CHECK(test::contains(message, "gemm"));
    CHECK(test::contains(message, to_string(exec.device)));
  }
}

TEST_CASE("a slot adds its time to the tracer under its name", "[kernels][registry]") {
  for (Exec exec : test::devices()) {
    Tracer tracer;
    exec.tracer = &tracer;
    const test::DeviceArray<float> y(exec, 8);
    kernels::fill(exec, {.y = y.view(), .value = 1});
    kernels::fill(exec, {.y = y.view(), .value = 2});
    const auto totals = tracer.totals();
    REQUIRE(totals.count("fill") == 1);
    CHECK(totals.at("fill").calls == 2);
  }
}

}  // namespace shale
