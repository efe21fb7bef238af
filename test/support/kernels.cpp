#include "test/support/kernels.h"

#include <cstdlib>
#include <new>
#include <thread>

#include "kernels/registry.h"
#include "test/support/catch.h"
#include "test/support/emulator.h"

namespace shale::test {
namespace {

constexpr size_t kMargin = 256;  // a few cache lines, and keeps data 64-byte aligned
constexpr int kMarginByte = 0xa5;
constexpr int kPoisonByte = 0xff;

// How to reach a device's memory. The CPU's and the emulator's is the host's, once the work that is
// queued there has run.
void finish(const Exec& exec) {
  if (exec.device.type == DeviceType::kEmu) {
    static_cast<emulator::Stream*>(exec.stream)->synchronize();
  }
}
std::byte* allocate(const Exec&, size_t bytes) {
  return static_cast<std::byte*>(::operator new (bytes, std::align_val_t{64}));
}
void release(const Exec& exec, std::byte* block) {
  if (exec.device.type == DeviceType::kEmu) {
    static_cast<emulator::Stream*>(exec.stream)->drain();
  }
  ::operator delete (block, std::align_val_t{64});
}
void copy_in(const Exec& exec, void* to, const void* from, size_t bytes) {
  finish(exec);
  if (bytes > 0) std::memcpy(to, from, bytes);
}
void copy_out(const Exec& exec, void* to, const void* from, size_t bytes) {
  finish(exec);
  if (bytes > 0) std::memcpy(to, from, bytes);
}

// Every reservation is fresh memory of exactly the size asked for.
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

// The Execs of a process. Never destroyed: workspaces and emulated GPUs last as long as tests do.
struct TestDevices {
  std::vector<std::unique_ptr<TestWorkspace>> workspaces;
  std::vector<std::unique_ptr<Emulator>> emulators;
  std::vector<Exec> always;    // what devices() returns
  std::vector<Exec> emulated;  // for slots that have a kernel for it

  TestDevices() {
    kernels::register_cpu_kernels();
    kernels::emu::register_kernels();
    always.push_back(with_workspace({.device = {.type = DeviceType::kCpu}, .threads = 2}));
    for (const emulator::Order order : {emulator::Order::kFifo, emulator::Order::kRandom}) {
      emulators.push_back(std::make_unique<Emulator>(emulator::Options{.order = order}));
      emulated.push_back(with_workspace(emulators.back()->exec()));
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
  return all_devices().always;
}

std::vector<Exec> devices_with(std::initializer_list<const kernels::SlotBase*> slots) {
  std::vector<Exec> execs = devices();
  for (const Exec& exec : all_devices().emulated) {
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

DeviceBytes::DeviceBytes(const Exec& exec, size_t bytes) : exec_(exec), bytes_(bytes) {
  const size_t total = bytes + 2 * kMargin;
  std::vector<unsigned char> image(total, kMarginByte);
  std::fill_n(image.begin() + kMargin, bytes, static_cast<unsigned char>(kPoisonByte));
  block_ = allocate(exec_, total);
  data_ = block_ + kMargin;
  copy_in(exec_, block_, image.data(), total);
}

DeviceBytes::~DeviceBytes() {
  release(exec_, block_);
}

void DeviceBytes::upload(const void* from) {
  copy_in(exec_, data_, from, bytes_);
}

void DeviceBytes::download(void* to) const {
  copy_out(exec_, to, data_, bytes_);
}

bool DeviceBytes::margins_intact() const {
  std::vector<unsigned char> image(bytes_ + 2 * kMargin);
  copy_out(exec_, image.data(), block_, image.size());
  const auto is_margin = [](unsigned char byte) { return byte == kMarginByte; };
  return std::all_of(image.begin(), image.begin() + kMargin, is_margin) &&
         std::all_of(image.end() - kMargin, image.end(), is_margin);
}

}  // namespace shale::test
