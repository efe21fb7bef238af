#include "shale/models/training/checks/health_check.h"

#include "shale/test/support/emulator.h"
#include "shale/test/support/ranks/devices.h"
#include "shale/test/support/ranks/harness.h"

namespace shale::test {
namespace {

// Device that corrupts one element of every copy to the host.
class FaultyDevice final : public ChangedDevice {
 public:
  FaultyDevice() : ChangedDevice({.order = emulator::Order::kFifo, .track = false}) {}
  bool faulty = false;
  void copy(void* to, const void* from, size_t bytes, void* stream) override {
    ChangedDevice::copy(to, from, bytes, stream);
    if (!faulty || bytes < 4096) return;
    ChangedDevice::synchronize(stream);
    static_cast<float*>(to)[bytes / sizeof(float) - 1] += 1;
  }
};

}  // namespace

TEST_CASE("an all-reduce of ones on the device's own group is looked at to the last element") {
  auto owned = std::make_unique<FaultyDevice>();
  FaultyDevice& device = *owned;
  Context context({.deterministic = true}, std::move(owned));
  const auto group = world().group(
      {.name = "gpus", .timeout_s = 60, .transport = comm::Transport::kMpi}, context.backend());
  CHECK_NOTHROW(models::check_device_sums(context, *group));
  if (group->size() == 1) return;
  device.faulty = true;
  const std::string message =
      message_of<CommError>([&] { models::check_device_sums(context, *group); });
  CAPTURE(message);
  CHECK(
      contains(message, cat("rank ", group->rank(), ": an all-reduce of ones over staged gives")));
  device.faulty = false;
  group->host().barrier();
}

}  // namespace shale::test
