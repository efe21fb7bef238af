// Tests batches that are uploaded while an emulated GPU computes.
#include "shale/runtime/data/batch_uploads.h"

#include "shale/kernels/simt/engine/stream.h"
#include "shale/runtime/data/device_batch.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/emulator.h"
#include "shale/test/support/op_check.h"

namespace shale::test {
namespace {

// Makes batch `i` with two fields, one of which fills whole cache lines.
void fill(Batch& batch, int i, int64_t rows) {
  for (float& x : batch.set("x", DType::kF32, {rows, 16}).values<float>()) x = float(i);
  for (int32_t& y : batch.set("y", DType::kI32, {rows}).values<int32_t>()) y = -i;
}

}  // namespace

TEST_CASE("uploaded batches arrive whole, whatever the device does when", "[data]") {
  for (const auto& options : emulator_orders()) {
    Context context({}, make_emu_backend({.type = DeviceType::kEmu, .arch = 80}, options));
    std::vector<Tensor> kept;
    {
      BatchUploads uploads(context);
      Batch batch;
      DeviceBatch on_device;
      for (int i = 0; i < 9; ++i) {
        fill(batch, i, 3 + i % 4);  // sizes of batches grow and shrink
        on_device.upload(context, batch, DeviceBatch::Memory::kFresh, &uploads);
        kept.push_back(on_device["x"]), kept.push_back(on_device["y"]);
      }
    }
    for (int i = 0; i < 9; ++i) {
      const auto x = to_host<float>(kept[size_t(2 * i)]);
      const auto y = to_host<int32_t>(kept[size_t(2 * i + 1)]);
      CHECK(x == std::vector<float>(x.size(), float(i)));
      CHECK(y == std::vector<int32_t>(size_t(3 + i % 4), -i));
    }
  }
}

TEST_CASE("a batch is copied to the device before the work that was queued earlier has run",
          "[data]") {
  // With Order::kLifo, the emulated GPU runs only work for which the host waits.
  Context context({}, make_emu_backend({.type = DeviceType::kEmu, .arch = 80},
                                       {.order = emulator::Order::kLifo}));
  BatchUploads uploads(context);
  Batch batch;
  DeviceBatch on_device;
  fill(batch, 1, 4);
  for (int warm = 0; warm < 2; ++warm) {
    on_device.upload(context, batch, DeviceBatch::Memory::kFresh, &uploads);
  }
  context.synchronize();
  auto* const stream = static_cast<emulator::Stream*>(context.exec().stream);
  bool computed = false;
  stream->enqueue([&] { computed = true; });  // stands for the computation of the step
  // The third upload waits for the copy of the first one.
  for (int i = 0; i < 3; ++i) {
    on_device.upload(context, batch, DeviceBatch::Memory::kSame, &uploads);
  }
  CHECK_FALSE(computed);
  CHECK(to_host<float>(on_device["x"])[0] == 1);
  CHECK(computed);
}

}  // namespace shale::test
