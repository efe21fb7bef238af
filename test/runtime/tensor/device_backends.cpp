#include <cstring>
#include <memory>
#include <vector>

#include "shale/base/error.h"
#include "shale/base/gpu_model.h"
#include "shale/base/host_memory.h"
#include "shale/kernels/simt/engine/options.h"
#include "shale/runtime/tensor/allocator.h"
#include "shale/runtime/tensor/context.h"
#include "shale/runtime/tensor/device_backend.h"
#include "shale/runtime/tensor/tensor.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/emulator.h"

namespace shale {
namespace {

constexpr size_t kBytes = 4096;

// Owns memory that a provider allocated.
class Memory {
 public:
  explicit Memory(MemoryProvider& provider)
      : provider_(provider), data_(static_cast<unsigned char*>(provider.allocate(kBytes))) {}
  ~Memory() { provider_.free(data_, kBytes); }
  unsigned char* data() const { return data_; }
  void fill(int byte) const { std::memset(data_, byte, kBytes); }

 private:
  MemoryProvider& provider_;
  unsigned char* data_;
};

std::unique_ptr<DeviceBackend> emulated(const emulator::Options& options) {
  return make_emu_backend({.type = DeviceType::kEmu, .arch = 80}, options);
}

// Copies from host to device on one stream, and back on another. Returns one byte of the result.
int round_trip(const emulator::Options& options, bool wait) {
  const auto backend = emulated(options);
  const Memory device(backend->memory()), from(backend->host_memory()), to(backend->host_memory());
  void *up = backend->create_stream(), *down = backend->create_stream();
  from.fill(1);
  backend->copy(device.data(), from.data(), kBytes, up);
  void* uploaded = backend->record_event(up);
  if (wait) backend->wait_event(down, uploaded);
  backend->copy(to.data(), device.data(), kBytes, down);
  backend->synchronize(down);
  const int result = to.data()[kBytes - 1];
  backend->destroy_event(uploaded);
  backend->destroy_stream(up);
  backend->destroy_stream(down);
  return result;
}

}  // namespace

TEST_CASE("copies on emulated streams are ordered by events only", "[runtime][device]") {
  int wrong = 0;
  for (const auto& options : test::emulator_orders()) {
    CHECK(round_trip(options, true) == 1);
    wrong += round_trip(options, false) != 1;
  }
  CHECK(wrong > 0);
}

TEST_CASE("an emulated copy reads pinned memory late and other host memory at once",
          "[runtime][device]") {
  const auto backend = emulated({});
  const Memory device(backend->memory()), pinned(backend->host_memory());
  std::vector<unsigned char> ordinary(kBytes, 1), result(kBytes);
  void* stream = backend->create_stream();
  backend->copy(device.data(), ordinary.data(), kBytes, stream);
  ordinary.assign(kBytes, 2);
  backend->copy(result.data(), device.data(), kBytes, stream);
  CHECK(result[0] == 1);  // a copy of pageable memory is complete on return
  pinned.fill(3);
  backend->copy(device.data(), pinned.data(), kBytes, stream);
  pinned.fill(4);  // overwrites pinned memory before the copy runs
  backend->copy(result.data(), device.data(), kBytes, stream);
  CHECK(result[0] == 4);
  backend->destroy_stream(stream);
}

TEST_CASE("new emulated device memory holds NaN", "[runtime][device]") {
  const auto backend = emulated({});
  const Memory device(backend->memory());
  CHECK(device.data()[0] == 0xff);
  CHECK(device.data()[kBytes - 1] == 0xff);
}

TEST_CASE("a tensor on the emulator can have memory of exactly its size", "[runtime][device]") {
  // 1000 bytes: no multiple of the allocator's alignment.
  for (const bool exact : {false, true}) {
    const auto backend = emulated({.exact = exact});
    CachingAllocator allocator(*backend, 0);
    CachingAllocator::Block* const block =
        allocator.allocate(1000, MemoryTag::kActivation, nullptr, "a test");
    const auto* const data = static_cast<const std::byte*>(CachingAllocator::data(block));
    CHECK(backend->reaches(data + 999));
    CHECK(backend->reaches(data + 1000) == !exact);
    allocator.free(block);
    CHECK((allocator.stats().reserved == 0) == exact);
  }
}

TEST_CASE("an emulated event is done when its work has run", "[runtime][device]") {
  const auto backend = emulated({});
  const Memory device(backend->memory()), pinned(backend->host_memory());
  void* stream = backend->create_stream();
  backend->copy(device.data(), pinned.data(), kBytes, stream);
  void* event = backend->record_event(stream);
  CHECK_FALSE(backend->event_done(event));
  backend->synchronize_event(event);
  CHECK(backend->event_done(event));
  backend->destroy_event(event);
  backend->destroy_stream(stream);
}

TEST_CASE("the emulator has the GPUs of its list", "[runtime][device]") {
  for (const std::string& name : emulated_names()) {
    CHECK(to_string(make_backend(emulated_device(name))->device()) == name);
  }

  CHECK(make_backend({.type = DeviceType::kEmu})->device().arch == 90);
  CHECK(make_backend({.type = DeviceType::kEmu, .arch = 80})->device().arch == 80);
  CHECK(test::contains(test::message_of<UnavailableError>(
                           [] { make_backend({.type = DeviceType::kEmu, .arch = 70}); }),
                       "emu:70, expected one of emu:75, emu:80, emu:86, emu:89, emu:90, emu:100, "
                       "emu:120"));
  CHECK(test::contains(test::message_of<ConfigError>([] { emulated_device("emu:70"); }),
                       "expected one of emu:75"));
}

TEST_CASE("a GPU that is not known has the limits of those for graphics", "[device]") {
  CHECK(gpu_model(88).block_shared_bytes == kGraphicsBlockShared);
  CHECK(gpu_model(130).block_shared_bytes == kGraphicsBlockShared);
  for (const GpuModel& model : gpu_models()) {
    if (model.arch >= kOldestArch) CHECK(model.block_shared_bytes >= kLeastBlockShared);
  }
}

TEST_CASE(
    "kernels that the driver compiles are said to be, with the build that would not need it",
    "[device]") {
  const Device b200{.type = DeviceType::kCuda, .arch = 100};
  CHECK(kernels_text(b200, 100) == "machine code for 10.0");
  const std::string text = kernels_text(b200, 80);
  CHECK(test::contains(text, "the driver compiles the PTX of the kernels (8.0)"));
  CHECK(test::contains(text, "-DSHALE_CUDA_ARCHITECTURES=\"100-real;80-virtual\""));
  CHECK(kernels_text({.type = DeviceType::kCuda, .arch = 90}, 90) ==
        "machine code for 9.0, with the kernels for Hopper");
  CHECK(kernels_text({.type = DeviceType::kCuda, .arch = 89}, 80) == "machine code for 8.0");
}

TEST_CASE("GPUs before the oldest that kernels are for have none, and are not emulated",
          "[device]") {
  const auto text_of = [](int arch) {
    const Device gpu{.type = DeviceType::kCuda, .index = 1, .arch = arch};
    CHECK_FALSE(driver_compiles(gpu, 80));
    return kernels_text(gpu, 80);
  };
  CHECK(text_of(70) ==
        "no kernels for cuda:1 of compute capability 7.0, expected 7.5 or later, which has "
        "the instruction mma.m16n8k8");
  for (const GpuModel& model : gpu_models()) {
    if (model.emulated) CHECK(model.arch >= kOldestArch);
  }
}

TEST_CASE("a GPU before 8.0 has no bf16, and says what fits", "[runtime][device]") {
  Context turing({.device = emulated_device("emu:75")});
  CHECK(empty(turing, {4}, DType::kF16).numel() == 4);
  CHECK(test::message_of<UnavailableError>([&] { empty(turing, {4}, DType::kBF16); })
            .find("emu:75 of compute capability 7.5 has no bf16, which needs 8.0 or later; use "
                  "--dtype fp16") != std::string::npos);
  check_dtype_of({.type = DeviceType::kCpu}, DType::kBF16, "x");
  check_dtype_of({.type = DeviceType::kCuda, .arch = 80}, DType::kBF16, "x");
}

// Otherwise Linux would kill the process without a message when it writes to the memory.
TEST_CASE("memory that the host does not have is refused before it is written", "[device]") {
  const auto available = available_host_memory();
  if (!available) return;
  const auto backend = make_backend({});
  const auto third = static_cast<size_t>(*available / 3);
  // Counts as used before any page is written.
  void* const first = backend->memory().allocate(third);
  void* const second = backend->memory().allocate(third);
  CHECK(test::contains(
      test::message_of<OutOfMemoryError>([&] { backend->memory().allocate(2 * third); }),
      "more do not fit into host memory: only "));
  backend->memory().free(second, third);
  backend->memory().free(backend->memory().allocate(third), third);
  backend->memory().free(first, third);
}

TEST_CASE("a GPU that is not there is an error, not a crash", "[runtime][device]") {
  const Device none = {.type = DeviceType::kCuda, .index = 1000};
  CHECK_THROWS_AS(make_backend(none), UnavailableError);
}

}  // namespace shale
