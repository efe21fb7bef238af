#include "shale/test/support/kernels.h"

#include <cstdio>
#include <cstdlib>
#include <new>
#include <string_view>
#include <utility>

#include "shale/base/error.h"
#include "shale/base/gpu_model.h"
#include "shale/kernels/registry.h"
#include "shale/runtime/tensor/device_backend.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/emulator.h"

namespace shale::test {
namespace {

constexpr size_t kMargin = 256;  // several cache lines; data stays 64-byte aligned
constexpr int kMarginByte = 0xa5;
constexpr int kPoisonByte = 0xff;

// Returns the GPU's backend. It is never destroyed: if tests end while the GPU is working, the
// driver cleans up.
DeviceBackend& cuda() {
  static DeviceBackend& backend = *make_backend({.type = DeviceType::kCuda}).release();
  return backend;
}

// Functions that access a device's memory. The memory of the CPU and the emulator is host memory,
// which may be read after the queued work has run.
void finish(const Exec& exec) {
  if (exec.device.type == DeviceType::kEmu) {
    synchronize_emulated(exec);
  } else if (exec.device.type == DeviceType::kCuda) {
    cuda().synchronize(exec.stream);
  }
}
std::byte* allocate(const Exec& exec, size_t bytes) {
  if (exec.device.type == DeviceType::kCuda) {
    return static_cast<std::byte*>(cuda().memory().allocate(bytes));
  }
  return static_cast<std::byte*>(::operator new (bytes, std::align_val_t{64}));
}
void release(const Exec& exec, std::byte* block, size_t bytes) {
  if (exec.device.type == DeviceType::kCuda) return cuda().memory().free(block, bytes);
  ::operator delete (block, std::align_val_t{64});
}
// Copies between host and device, in either direction.
void copy(const Exec& exec, void* to, const void* from, size_t bytes) {
  if (exec.device.type == DeviceType::kCuda) cuda().copy(to, from, bytes, exec.stream);
  finish(exec);
  if (exec.device.type != DeviceType::kCuda && bytes > 0) std::memcpy(to, from, bytes);
}

// Returns false under tools that track which memory was never written. Filling the memory would
// hide errors from them.
bool poisons() {
  const char* wish = std::getenv("SHALE_TEST_POISON");
  return wish == nullptr || std::string_view(wish) != "0";
}

// Workspace in which each reservation is new memory of exactly the requested size.
class TestWorkspace : public Workspace {
 public:
  explicit TestWorkspace(const Exec& exec) : exec_(exec) {}
  void* reserve(size_t bytes) override {
    if (current_ && !current_->margins_intact()) {
      throw InternalError("a kernel wrote outside its workspace");
    }
    current_ = std::make_unique<DeviceBytes>(exec_, bytes);
    return current_->data();
  }

 private:
  Exec exec_;
  std::unique_ptr<DeviceBytes> current_;
};

// The devices of this process. They are never destroyed, because workspaces and emulated GPUs are
// used until the end.
struct TestDevices {
  std::vector<std::unique_ptr<TestWorkspace>> workspaces;
  std::vector<std::unique_ptr<Emulator>> emulators;
  std::vector<Exec> always;  // result of devices()
  std::vector<Exec> gpus;    // emulated and real GPUs, for slots with GPU kernels

  TestDevices() {
#ifdef SHALE_HAVE_CPU_KERNELS
    kernels::register_cpu_kernels();
    always.push_back(with_workspace({.device = {.type = DeviceType::kCpu}, .threads = 2}));
#endif
    const char* chosen = std::getenv("SHALE_TEST_GPU");
    if (chosen == nullptr || std::string_view(chosen) == "emu") add_emulated(80, 90);
    if (chosen != nullptr && std::string_view(chosen).starts_with("emu:")) {
      const int arch = emulated_device(chosen).arch;
      add_emulated(arch, arch);
    }
    if (chosen == nullptr || std::string_view(chosen) == "cuda") add_cuda(chosen != nullptr);
    if (chosen != nullptr && gpus.empty()) {
      throw ConfigError(
          cat("SHALE_TEST_GPU: '", chosen, "', expected emu, emu:75 and its like, or cuda"));
    }
  }
  // Adds two emulated GPUs, with different orders of threads. By default they have different
  // architectures too.
  void add_emulated(int arch, int other_arch) {
    emulators = emulators_with_kernels(
        {{.order = emulator::Order::kFifo}, {.order = emulator::Order::kRandom}});
    for (const auto& emulator : emulators) {
      gpus.push_back(with_workspace(emulator->exec()));
      gpus.back().device.arch = std::exchange(arch, other_arch);
      // A dependent launch shows if a kernel does something unsafe before it waits for the previous
      // kernel.
      gpus.back().dependent_launch = gpus.back().device.arch == 90;
    }
  }
  void add_cuda(bool insist) {
    try {
      const char* dependent = std::getenv("SHALE_TEST_DEPENDENT_LAUNCH");
      Exec exec{.device = cuda().device(), .stream = cuda().create_stream()};
      exec.dependent_launch = dependent != nullptr && std::string_view(dependent) == "1";
      gpus.push_back(with_workspace(exec));
      if (exec.device.arch == 90) {  // two blocks, each with several tiles, as on the emulator
        exec.persistent_blocks = 2;
        gpus.push_back(with_workspace(exec));
      }
    } catch (const UnavailableError& error) {
      if (insist) throw;
      std::printf("skipped: kernels are not run on a GPU: %s\n", error.what());
    }
  }
  Exec with_workspace(Exec exec) {
    workspaces.push_back(std::make_unique<TestWorkspace>(exec));
    exec.workspace = workspaces.back().get();
    return exec;
  }
};

const TestDevices& all_devices() {
  static const auto& all = *new TestDevices;
  return all;
}

}  // namespace

const std::vector<Exec>& devices() {
#ifndef SHALE_HAVE_CPU_KERNELS
  SKIP("this build has no CPU kernels");
#endif
  return all_devices().always;
}

std::vector<Exec> devices_with(std::initializer_list<const kernels::SlotBase*> slots) {
  std::vector<Exec> execs = all_devices().always;
  for (const Exec& exec : all_devices().gpus) {
    const auto missing = std::find_if(slots.begin(), slots.end(), [&](const auto* slot) {
      return !slot->filled(exec.device.type);
    });
    if (missing == slots.end()) {
      execs.push_back(exec);
    } else {
      WARN("skipped: " << (*missing)->name() << " has no kernel for " << to_string(exec.device));
    }
  }
  return execs;
}

Exec with_threads(Exec exec, int threads) {
  exec.threads = threads;
  return exec;
}

Exec with_step(Exec exec, StepState* step) {
  exec.step = step;
  return exec;
}

DeviceBytes::DeviceBytes(const Exec& exec, size_t bytes, size_t element_bytes)
    : exec_(exec), bytes_(bytes) {
  const std::vector<unsigned char> margin(kMargin, kMarginByte);
  block_ = allocate(exec_, bytes + 2 * kMargin);
  data_ = block_ + kMargin;
  copy(exec_, block_, margin.data(), kMargin);
  copy(exec_, data_ + bytes, margin.data(), kMargin);
  if (exec_.device.type == DeviceType::kEmu) {
    add_emulated_memory(exec_, data_, bytes, element_bytes);
  }
  if (poisons()) {
    const std::vector<unsigned char> poison(bytes, kPoisonByte);
    copy(exec_, data_, poison.data(), bytes);
  }
}

DeviceBytes::~DeviceBytes() {
  if (exec_.device.type == DeviceType::kEmu) {
    drain_emulated(exec_);
    remove_emulated_memory(exec_, data_);
  }
  release(exec_, block_, bytes_ + 2 * kMargin);
}

void DeviceBytes::upload(const void* from) {
  copy(exec_, data_, from, bytes_);
  if (exec_.device.type == DeviceType::kEmu) write_emulated_memory(exec_, data_, bytes_);
}

void DeviceBytes::download(void* to) const {
  copy(exec_, to, data_, bytes_);
}

bool DeviceBytes::margins_intact() const {
  std::vector<unsigned char> margins(2 * kMargin);
  copy(exec_, margins.data(), block_, kMargin);
  copy(exec_, margins.data() + kMargin, data_ + bytes_, kMargin);
  return std::all_of(margins.begin(), margins.end(),
                     [](unsigned char byte) { return byte == kMarginByte; });
}

}  // namespace shale::test
