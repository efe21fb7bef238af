#include "shale/runtime/data/batch.h"

#include "shale/base/error.h"
#include "shale/runtime/data/device_batch.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/op_check.h"

namespace shale::test {

TEST_CASE("a batch has fields of any type and shape, found by name", "[data]") {
  Batch batch;
  batch.set("image", DType::kF32, {2, 3, 4, 4}).values<float>()[0] = 0.5f;
  batch.set("label", DType::kI32, {2}).values<int32_t>()[1] = 7;
  CHECK(batch.field("image").shape == Shape{2, 3, 4, 4});
  CHECK(batch.field("label").values<int32_t>()[1] == 7);
  CHECK_THROWS_AS(batch.field("label").values<float>(), InternalError);
  CHECK(contains(message_of<InternalError>([&] { batch.field("labels"); }),
                 "no field 'labels', there are: image label"));
  const auto* memory = batch.field("label").bytes.data();
  CHECK(batch.set("label", DType::kI32, {1}).bytes.data() == memory);
  CHECK(batch.fields.size() == 2);
}

TEST_CASE("a batch whose size overflows is an error, and changes nothing", "[data]") {
  constexpr int64_t kHuge = int64_t{1} << 58;
  Batch batch;
  batch.set("x", DType::kF32, {3});
  for (const Shape& shape : {Shape{kHuge, 64}, Shape{kHuge, 16}, Shape{-1, 4}}) {
    CHECK_THROWS_AS(batch.set("x", DType::kF32, shape), ShapeError);
  }
  CHECK(batch.field("x").shape == Shape{3});
}

TEST_CASE("a batch on a device keeps its memory if it is to, and then its fields", "[data]") {
  Context context(small_context(1));
  Batch batch;
  batch.set("x", DType::kF32, {2}).values<float>()[1] = 3;
  DeviceBatch on_device(context, batch);
  const Tensor first = on_device["x"];
  CHECK(to_host<float>(first)[1] == 3);
  CHECK(contains(message_of<InternalError>([&] { on_device["y"]; }), "there are: x"));

  batch.set("x", DType::kF32, {2}).values<float>()[1] = 4;
  on_device.upload(context, batch, DeviceBatch::Memory::kFresh);
  CHECK(to_host<float>(first)[1] == 3);
  const void* memory = on_device["x"].data();
  batch.set("x", DType::kF32, {2}).values<float>()[1] = 5;
  on_device.upload(context, batch, DeviceBatch::Memory::kSame);
  CHECK(on_device["x"].data() == memory);
  CHECK(to_host<float>(on_device["x"])[1] == 5);

  batch.set("x", DType::kF32, {3});
  CHECK_THROWS_AS(on_device.upload(context, batch, DeviceBatch::Memory::kSame), ShapeError);
  batch.set("x", DType::kF32, {2});
  batch.set("y", DType::kF32, {2});
  CHECK_THROWS_AS(on_device.upload(context, batch, DeviceBatch::Memory::kSame), ShapeError);
}

}  // namespace shale::test
