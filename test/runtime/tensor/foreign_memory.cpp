#include "shale/runtime/tensor/foreign_memory.h"

#include <array>
#include <cstring>

#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/ops/elementwise.h"
#include "shale/runtime/ops/reduce.h"
#include "shale/runtime/tensor/dlpack.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/op_check.h"

namespace shale::test {
namespace {

using Floats = std::vector<float>;

// The part of DLPack's struct (version 1) that is used here, as its header documents it.
struct Managed {
  uint32_t major, minor;
  void* owner;
  void (*deleter)(void*);
  uint64_t flags;
  void* data;
  int32_t device, device_id, ndim;
  uint8_t code, bits;
  uint16_t lanes;
  int64_t *shape, *strides;
  uint64_t offset;
};

Managed& layout_of(DLManagedTensorVersioned* managed) {
  return *reinterpret_cast<Managed*>(managed);
}
DLManagedTensorVersioned* dlpack_of(Managed& managed) {
  return reinterpret_cast<DLManagedTensorVersioned*>(&managed);
}

}  // namespace

TEST_CASE("a tensor over memory of the program shares it, and releases it once") {
  Context context(small_context());
  alignas(64) std::array<float, 6> values = {1, 2, 3, 4, 5, 6};
  int released = 0;
  Tensor x = from_blob(context, values.data(), {2, 2}, DType::kF32,
                       {.strides = Shape{3, 1}, .release = [&] { ++released; }});
  values[4] = 50;
  CHECK(to_host<float>(scale(add(x, zeros(context, {2, 2}, DType::kF32)), 1)) ==
        Floats{1, 2, 4, 50});
  x.set_requires_grad(true);
  Tensor y = sum(add(x, x));
  x = {};
  CHECK(released == 0);  // the graph still uses the memory
  backward(y);
  y = {};
  CHECK(released == 1);
  const Tensor all = from_blob(context, values.data(), {6}, DType::kF32);
  Tensor in_place = all;
  scale_(in_place, 2);
  CHECK(values[5] == 12);
}

TEST_CASE("memory that a tensor cannot have is refused with a sentence") {
  Context context(small_context());
  std::array<float, 8> values{};
  int released = 0;
  const auto refused = [&](void* data, const Shape& shape, std::optional<Shape> strides = {}) {
    return message_of<ShapeError>([&] {
      from_blob(context, data, shape, DType::kF32,
                {.strides = strides, .release = [&] { ++released; }});
    });
  };
  CHECK(contains(refused(nullptr, {2}), "data is NULL, expected 8 bytes"));
  CHECK(contains(refused(reinterpret_cast<char*>(values.data()) + 2, {2}), "not aligned"));
  CHECK(contains(refused(values.data(), {2}, Shape{-1}), "strides of 0 or more"));
  CHECK(contains(refused(values.data(), {2, 2}, Shape{1}), "one stride for each size"));
  CHECK(contains(refused(values.data(), {-2}), "sizes of 0 or more"));
  CHECK(contains(refused(values.data(), {int64_t{1} << 61}), "address space"));
  CHECK(released == 0);
  CHECK(from_blob(context, nullptr, {0, 3}, DType::kF32).numel() == 0);
  for (const ContextOptions& options : small_contexts()) {
    if (options.device.type == DeviceType::kCpu) continue;
    Context device(options);
    CHECK(contains(
        message_of<ShapeError>([&] { from_blob(device, values.data(), {2}, DType::kF32); }),
        "not in the memory of emu"));
  }
}

TEST_CASE("device memory of the program comes and goes on its stream") {
  for (const ContextOptions& options : small_contexts()) {
    CAPTURE(to_string(options.device));
    Context context(options);
    DeviceBackend& device = context.backend();
    void* const stream = device.create_stream();
    auto* const memory = static_cast<float*>(device.memory().allocate(4096));
    auto* const host = static_cast<float*>(device.host_memory().allocate(4096));
    const Floats values = {1, 2, 3, 4};
    std::memcpy(host, values.data(), 16);
    {
      // Queues the other program's work, which has not run yet.
      device.copy(memory, host, 16, stream);
      const Tensor x = from_blob(context, memory, {4}, DType::kF32, {.stream = stream});
      const Tensor y = scale(x, 10);
      hand_over(y, stream);
      device.copy(host, y.data(), 16, stream);
      hand_over(y, stream);
      device.synchronize(stream);
    }
    CHECK(Floats(host, host + 4) == Floats{10, 20, 30, 40});
    context.synchronize();
    device.memory().free(memory, 4096);
    device.host_memory().free(host, 4096);
    context.allocator().forget_stream(stream);
    device.destroy_stream(stream);
  }
}

TEST_CASE("DLPack goes out and comes in without a copy") {
  Context context(small_context());
  const Tensor x = from_host<float>(context, Floats{1, 2, 3, 4, 5, 6}, {2, 3});
  DLManagedTensorVersioned* const shown = to_dlpack(x);
  const Managed& seen = layout_of(shown);
  CHECK(seen.major == 1);
  CHECK(seen.data == x.data());
  CHECK(
      (seen.device == 1 && seen.ndim == 2 && seen.code == 2 && seen.bits == 32 && seen.lanes == 1));
  CHECK((seen.shape[0] == 2 && seen.shape[1] == 3 && seen.strides[0] == 3));
  Tensor back = from_dlpack(context, shown);
  CHECK(back.data() == x.data());
  CHECK(to_host<float>(back) == Floats{1, 2, 3, 4, 5, 6});
  CHECK(x.storage().use_count() == 2);
  back = {};
  CHECK(x.storage().use_count() == 1);
  DLManagedTensor* const legacy = to_dlpack_legacy(x);
  CHECK(from_dlpack(context, legacy).data() == x.data());
  CHECK(x.storage().use_count() == 1);
}

TEST_CASE("DLPack that does not fit is refused, and stays with its owner") {
  Context context(small_context());
  int64_t shape[] = {2};
  float values[] = {1, 2};
  static int deleted = 0;
  deleted = 0;
  Managed given{.major = 1,
                .minor = 0,
                .owner = nullptr,
                .deleter = [](void*) { ++deleted; },
                .flags = 0,
                .data = values,
                .device = 1,
                .device_id = 0,
                .ndim = 1,
                .code = 2,
                .bits = 32,
                .lanes = 1,
                .shape = shape,
                .strides = nullptr,
                .offset = 0};
  const auto refused = [&](auto change) {
    Managed other = given;
    change(other);
    return message_of<InternalError>([&] { from_dlpack(context, dlpack_of(other)); });
  };
  CHECK(contains(refused([](Managed& m) { m.major = 2; }), "DLPack 2.0, expected 1.x"));
  CHECK(contains(refused([](Managed& m) { m.device = 2; }), "device type 2"));
  CHECK(contains(refused([](Managed& m) { m.bits = 4; }), "4 bits"));
  CHECK(contains(refused([](Managed& m) { m.lanes = 4; }), "4 lanes"));
  CHECK(contains(refused([](Managed& m) { m.flags = 1; }), "read-only"));
  CHECK(contains(refused([](Managed& m) { m.ndim = 99; }), "99 dimensions"));
  CHECK(deleted == 0);
  CHECK(to_host<float>(from_dlpack(context, dlpack_of(given))) == Floats{1, 2});
  CHECK(deleted == 1);
}

}  // namespace shale::test
