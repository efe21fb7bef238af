#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "shale/base/exec.h"
#include "shale/kernels/simt/engine/fault.h"
#include "shale/kernels/simt/engine/options.h"
#include "shale/kernels/simt/engine/stream.h"
#include "shale/runtime/tensor/device_backend.h"

namespace shale::test {

// An emulated GPU for kernels that a test defines. It has one stream, whose launches are queued
// until finish(). Each workspace is new memory filled with NaN, which is kept until the end.
class Emulator {
 public:
  explicit Emulator(const emulator::Options& options = {}, int threads = 2)
      : streams_(options), stream_(streams_.create()) {
    exec_.device = {.type = DeviceType::kEmu, .arch = 90};
    exec_.stream = stream_;
    exec_.threads = threads;
    exec_.workspace = &workspace_;
    exec_.persistent_blocks = 2;  // so that a block processes several tiles even of a small problem
  }
  Emulator(const Emulator&) = delete;
  Emulator& operator=(const Emulator&) = delete;
  const Exec& exec() const { return exec_; }
  // Waits for all queued work and throws errors of kernels.
  void finish() { streams_.synchronize(stream_); }

 private:
  class FreshMemory : public Workspace {
   public:
    explicit FreshMemory(emulator::StreamSet& streams) : streams_(streams) {}
    void* reserve(size_t bytes) override {
      constexpr size_t kAlignment = 64;
      std::vector<std::byte>& block = blocks_.emplace_back(bytes + kAlignment, std::byte{0xff});
      size_t room = block.size();
      void* start = block.data();
      std::align(kAlignment, bytes, start, room);
      streams_.memory().add_watched(start, bytes, /*element_bytes=*/1);
      return start;
    }

   private:
    emulator::StreamSet& streams_;
    std::list<std::vector<std::byte>> blocks_;
  };

  FreshMemory workspace_{streams_};  // destroyed after the queued launches
  emulator::StreamSet streams_;
  emulator::Stream* stream_;
  Exec exec_;
};

// Orders of queued work: first in, first out; last in, first out; ten random orders.
const std::vector<emulator::Options>& emulator_orders();
std::string describe(const emulator::Options& options);

// ---- For tests that use emulated GPUs in addition to other devices. A build without the emulator
// ---- (without_emulator.cpp) has none of them, and the functions that wait do nothing.

// Makes an emulated A100 for each of these orders.
std::vector<std::unique_ptr<DeviceBackend>> emulated_gpus(
    const std::vector<emulator::Options>& orders);
// Makes an emulated GPU with these options, for which the kernels are registered.
std::unique_ptr<Emulator> emulator_with_kernels(const emulator::Options& options);
std::vector<std::unique_ptr<Emulator>> emulators_with_kernels(
    const std::vector<emulator::Options>& orders);
// Waits for the stream of an emulated Exec and throws errors of kernels. drain_emulated() waits
// without throwing.
void synchronize_emulated(const Exec& exec);
// Tell the emulated device that memory exists (accesses to its elements are then checked), that the
// host has written to it, or that it no longer exists.
void add_emulated_memory(const Exec& exec, const void* p, size_t bytes, size_t element_bytes);
void write_emulated_memory(const Exec& exec, const void* p, size_t bytes);
void remove_emulated_memory(const Exec& exec, const void* p);
void drain_emulated(const Exec& exec);

struct FoundFault {
  bool found = false;
  emulator::Fault fault{};
  std::string message{};
};

// Calls run(emulator) and waits for its kernels. Returns the fault with which that ends, if any.
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
