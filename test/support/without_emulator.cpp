// Replaces test/support/emulator.cpp in a build without the emulator.
#include "shale/base/error.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/emulator.h"

namespace shale::test {
namespace {

[[noreturn]] void there_is_none() {
  throw InternalError("emulator: expected no use of it, as this build is without it");
}

void say_so() {
  static const bool once = [] {
    WARN("skipped: emulated GPUs, as this build is without the emulator");
    return true;
  }();
  static_cast<void>(once);
}

}  // namespace

const std::vector<emulator::Options>& emulator_orders() {
  static const std::vector<emulator::Options> none;
  return none;
}

std::vector<std::unique_ptr<DeviceBackend>> emulated_gpus(const std::vector<emulator::Options>&) {
  say_so();
  return {};
}

std::vector<std::unique_ptr<Emulator>> emulators_with_kernels(
    const std::vector<emulator::Options>&) {
  say_so();
  return {};
}

void synchronize_emulated(const Exec&) {
  there_is_none();
}

void drain_emulated(const Exec&) {
  there_is_none();
}

void add_emulated_memory(const Exec&, const void*, size_t, size_t) {
  there_is_none();
}

void write_emulated_memory(const Exec&, const void*, size_t) {
  there_is_none();
}

void remove_emulated_memory(const Exec&, const void*) {
  there_is_none();
}

}  // namespace shale::test
