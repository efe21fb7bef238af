#include <array>
#include <cstddef>
#include <numeric>
#include <vector>

#include "shale/base/error.h"
#include "shale/kernels/simt/engine/options.h"
#include "shale/runtime/tensor/device_backend.h"
#include "shale/runtime/tensor/handle_pool_internal.h"
#include "shale/runtime/tensor/upload_ring_internal.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/emulator.h"

namespace shale {
namespace {

constexpr size_t kRing = 4096, kUploads = 200, kMost = kRing / 4;

// Content of upload i: size and bytes are known.
std::vector<unsigned char> upload_of(size_t i) {
  std::vector<unsigned char> bytes(1 + i * 37 % kMost);
  std::iota(bytes.begin(), bytes.end(), static_cast<unsigned char>(i));
  return bytes;
}

}  // namespace

TEST_CASE("uploads through a ring arrive whole, whatever the device does when",
          "[runtime][device]") {
  for (const auto& options : test::emulator_orders()) {
    const auto backend = make_emu_backend({.type = DeviceType::kEmu, .arch = 80}, options);
    const std::array<void*, 2> streams = {backend->create_stream(), backend->create_stream()};
    auto* const device =
        static_cast<unsigned char*>(backend->memory().allocate(kUploads * kMost));
    {
      UploadRing ring(*backend, kRing);
      for (size_t i = 0; i < kUploads; ++i) {
        std::vector<unsigned char> bytes = upload_of(i);
        ring.upload(device + i * kMost, bytes.data(), bytes.size(), streams[i % 3 == 0]);
        bytes.assign(bytes.size(), 0);  // the ring has copied the bytes already
      }
    }  // the destructor waits for pending uploads
    size_t wrong = 0;
    for (size_t i = 0; i < kUploads; ++i) {
      std::vector<unsigned char> found(upload_of(i).size());
      backend->copy(found.data(), device + i * kMost, found.size(), streams[0]);
      wrong += found != upload_of(i);
    }
    CHECK(wrong == 0);
    for (void* stream : streams) backend->destroy_stream(stream);
    backend->memory().free(device, kUploads * kMost);
  }
}

TEST_CASE("a ring refuses what does not fit, and waits for nothing before it is full",
          "[runtime][device]") {
  const auto backend = make_emu_backend({.type = DeviceType::kEmu, .arch = 80}, {});
  void* const stream = backend->create_stream();
  auto* const device = static_cast<unsigned char*>(backend->memory().allocate(kRing));
  UploadRing ring(*backend, kRing);
  CHECK(ring.takes(kMost));
  CHECK_FALSE(ring.takes(kMost + 1));
  const std::vector<unsigned char> bytes(kMost + 1, 1);
  CHECK_THROWS_AS(ring.upload(device, bytes.data(), kMost + 1, stream), InternalError);
  ring.upload(device, bytes.data(), kMost, stream);
  void* const first = backend->record_event(stream);
  for (size_t i = 1; i < 4; ++i) ring.upload(device + i * kMost, bytes.data(), kMost, stream);
  CHECK_FALSE(backend->event_done(first));
  ring.upload(device, bytes.data(), kMost, stream);
  CHECK(backend->event_done(first));
  backend->destroy_event(first);
  backend->synchronize(stream);
  backend->destroy_stream(stream);
  backend->memory().free(device, kRing);
}

TEST_CASE("a pool makes a handle where none is unused, and destroys what it has",
          "[runtime][device]") {
  int made = 0, destroyed = 0;
  {
    std::array<int, 3> things{};
    HandlePool pool([&]() -> void* { return &things[size_t(made++)]; },
                    [&](void*) { ++destroyed; });
    void *first = pool.take(), *second = pool.take();
    CHECK(first != second);
    pool.give(first);
    CHECK(pool.take() == first);
    CHECK(made == 2);
    pool.give(second);
    CHECK(destroyed == 0);
  }
  CHECK(destroyed == 1);
}

}  // namespace shale
