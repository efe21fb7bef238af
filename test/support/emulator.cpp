#include "shale/test/support/emulator.h"

#include "shale/base/text.h"
#include "shale/kernels/registry.h"

namespace shale::test {

using emulator::Options;
using emulator::Order;

const std::vector<Options>& emulator_orders() {
  static const std::vector<Options> all = [] {
    std::vector<Options> list = {{.order = Order::kFifo}, {.order = Order::kLifo}};
    for (uint64_t seed = 1; seed <= 10; ++seed) {
      list.push_back({.order = Order::kRandom, .seed = seed});
    }
    return list;
  }();
  return all;
}

std::string describe(const Options& options) {
  switch (options.order) {
    case Order::kFifo: return "fifo";
    case Order::kLifo: return "lifo";
    case Order::kRandom: break;
  }
  return cat("random ", options.seed);
}

std::vector<std::unique_ptr<DeviceBackend>> emulated_gpus(const std::vector<Options>& orders) {
  std::vector<std::unique_ptr<DeviceBackend>> gpus;
  for (const Options& order : orders) {
    gpus.push_back(make_emu_backend({.type = DeviceType::kEmu, .arch = 80}, order));
  }
  return gpus;
}

std::unique_ptr<Emulator> emulator_with_kernels(const Options& options) {
  kernels::emu::register_kernels();
  return std::make_unique<Emulator>(options);
}

std::vector<std::unique_ptr<Emulator>> emulators_with_kernels(const std::vector<Options>& orders) {
  std::vector<std::unique_ptr<Emulator>> emulators;
  for (const Options& order : orders) emulators.push_back(emulator_with_kernels(order));
  return emulators;
}

void synchronize_emulated(const Exec& exec) {
  static_cast<emulator::Stream*>(exec.stream)->synchronize();
}

void add_emulated_memory(const Exec& exec, const void* p, size_t bytes, size_t element_bytes) {
  static_cast<emulator::Stream*>(exec.stream)->memory().add_watched(p, bytes, element_bytes);
}

void write_emulated_memory(const Exec& exec, const void* p, size_t bytes) {
  static_cast<emulator::Stream*>(exec.stream)->memory().written(p, bytes);
}

void remove_emulated_memory(const Exec& exec, const void* p) {
  static_cast<emulator::Stream*>(exec.stream)->memory().remove(p);
}

void drain_emulated(const Exec& exec) {
  static_cast<emulator::Stream*>(exec.stream)->drain();
}

}  // namespace shale::test
