#include "shale/kernels/registry.h"

#include <string>
#include <tuple>
#include <vector>

#include "shale/base/error.h"
#include "shale/kernels/check.h"
#include "shale/kernels/slots.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/kernels.h"

namespace shale {
namespace {

// A custom kernel that doubles x in place. It only calls other kernels, so it runs on every device
// that has them.
struct TwiceArgs {
  View x;
};
int checks = 0;
void check_args(const TwiceArgs& a) {
  ++checks;
  kernels::check_contiguous("twice", "x", a.x);
}
kernels::Slot<TwiceArgs> twice{"twice"};

void run_twice(const Exec& exec, const TwiceArgs& a) {
  kernels::axpby(exec, {.a = a.x, .y = a.x, .alpha = 2});
}
[[maybe_unused]] const bool twice_is_filled = [] {
  for (int type = 0; type < kDeviceTypes; ++type) twice.set(DeviceType(type), run_twice);
  return true;
}();

// Runs every kernel call `times` times and records its name.
class Repeater final : public kernels::CallObserver {
 public:
  explicit Repeater(int times) : times_(times) {}
  void around(const kernels::SlotCall& call) override {
    names += std::string(call.slot().name()) + ' ';
    const TwiceArgs* args = call.args_of(twice);
    if (args != nullptr) elements += args->x.numel();
    for (int i = 0; i < times_; ++i) call.run();
  }
  std::string names;
  int64_t elements = 0;

 private:
  int times_;
};

}  // namespace

TEST_CASE("every kernel slot has a CPU entry", "[kernels][registry]") {
  REQUIRE_FALSE(test::devices().empty());  // the first call of devices() registers the kernels
  REQUIRE_FALSE(kernels::SlotBase::all().empty());
  for (const kernels::SlotBase* slot : kernels::SlotBase::all()) {
    CAPTURE(slot->name());
    CHECK(slot->filled(DeviceType::kCpu));
  }
}

TEST_CASE("every device has the kernels that all devices have", "[kernels][registry]") {
  for (const Exec& exec : test::devices_with({})) {
    const auto is_filled = [&](const kernels::SlotBase& slot) {
      CAPTURE(slot.name(), to_string(exec.device));
      CHECK(slot.filled(exec.device.type));
    };
    std::apply([&](const auto&... slots) { (is_filled(slots), ...); },
               kernels::slots_on_all_devices());
  }
}

TEST_CASE("a slot of one's own checks its arguments once and runs", "[kernels][registry]") {
  for (const Exec& exec : test::devices_with({&twice})) {
    const test::DeviceArray<float> x(exec, std::vector<float>{1, 2, 3, 4});
    checks = 0;
    twice(exec, {.x = x.view()});
    CHECK(checks == 1);
    CHECK(x.download() == std::vector<float>{2, 4, 6, 8});
    const std::string message =
        test::message_of<ShapeError>([&] { twice(exec, {.x = x.view({2}, {2})}); });
    CHECK(test::contains(message, "twice: x is"));
    CHECK(x.download() == std::vector<float>{2, 4, 6, 8});
  }
}

TEST_CASE("an observer makes a call, in which it sees no others", "[kernels][registry]") {
  for (Exec exec : test::devices_with({&twice, &kernels::axpby})) {
    const test::DeviceArray<float> x(exec, std::vector<float>{1, 2, 3, 4});
    Repeater repeater(3);
    exec.observer = &repeater;
    checks = 0;
    twice(exec, {.x = x.view()});
    CHECK(checks == 1);
    CHECK(repeater.names == "twice ");
    CHECK(repeater.elements == 4);
    kernels::axpby(exec, {.a = x.view(), .y = x.view(), .alpha = 0.5f});
    CHECK(repeater.names == "twice axpby ");
    CHECK(repeater.elements == 4);
    CHECK(x.download() == std::vector<float>{1, 2, 3, 4});
    CHECK_THROWS_AS(twice(exec, {.x = x.view({2}, {2})}), ShapeError);
    CHECK(repeater.names == "twice axpby ");
  }
}

TEST_CASE("an unfilled slot throws an error that names op and device", "[kernels][registry]") {
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
