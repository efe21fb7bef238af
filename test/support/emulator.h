#pragma once

#include <string>
#include <vector>

#include "kernels/simt/engine/fault.h"
#include "kernels/simt/engine/options.h"
#include "kernels/simt/engine/stream.h"
#include "runtime/base/exec.h"

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
