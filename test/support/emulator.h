#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernels/simt/engine/fault.h"
#include "kernels/simt/engine/options.h"
#include "kernels/simt/engine/stream.h"
#include "runtime/base/exec.h"
#include "runtime/tensor/device_backend.h"

namespace shale::test {

// An emulated GPU with these options, for kernels that a test writes itself. One stream, on which
// launches queue until finish().
class Emulator {
 public:
  explicit Emulator(const emulator::Options& options = {}, int threads = 2)
      : streams_(options), stream_(streams_.create()) {
    exec_.device = {.type = DeviceType::kEmu, .arch = 90};
    exec_.stream = stream_;
    exec_.threads = threads;
  }
  const Exec& exec() const { return exec_; }
  void finish() { streams_.synchronize(stream_); }  // throws what the kernels failed with

 private:
  emulator::StreamSet streams_;
  emulator::Stream* stream_;
  Exec exec_;
};

// First in, first out; last in, first out; ten random orders.
const std::vector<emulator::Options>& emulator_orders();
std::string describe(const emulator::Options& options);

// ---- For tests that run on emulated GPUs beside other devices. In a build without the emulator
// ---- (without_emulator.cpp) there are none, and nothing waits for them.

// An A100 for each of these orders.
std::vector<std::unique_ptr<DeviceBackend>> emulated_gpus(
    const std::vector<emulator::Options>& orders);
// Emulated GPUs with these options, for which the kernels are registered.
std::vector<std::unique_ptr<Emulator>> emulators_with_kernels(
    const std::vector<emulator::Options>& orders);
// Of an emulated exec's stream: throws what kernels failed with; leaves that to others.
void synchronize_emulated(const Exec& exec);
void drain_emulated(const Exec& exec);

struct FoundFault {
  bool found = false;
  emulator::Fault fault{};
  std::string message{};
};

// What run(emulator) fails with, launches included.
template <typename Run>
FoundFault fault_of(const emulator::Options& options, Run&& run) {
  try {
    Emulator emulator(options);
    run(emulator.exec());
    emulator.finish();
  } catch (const emulator::KernelError& error) {
    return {true, error.fault(), error.what()};
  }
  return {};
}

}  // namespace shale::test
