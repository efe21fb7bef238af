#pragma once

#include <optional>
#include <string>
#include <vector>

#include "shale/base/pci_place.h"

namespace shale {

struct MachineGpu {
  PciPlace place;
  int arch = 0;                 // compute capability times ten
  std::string name{};           // "NVIDIA GeForce RTX 4090"
  std::vector<bool> reaches{};  // by index: whether it reads that one's memory itself
};

// The GPUs of a machine and what lies between them.
struct GpuMachine {
  std::vector<MachineGpu> gpus{};
  std::vector<PciPlace> places() const;
};

// Of a folder that stands for a machine: `sys/`, as /sys, and `gpus`, with a line for each GPU: its
// address, compute capability times ten, those whose memory it reaches (`0,1`, or `-`), its name.
// Throws ConfigError, which names the line.
GpuMachine read_gpu_machine(const std::string& folder);

// That of SHALE_MACHINE; nothing if it is not set. Emulated GPUs are in it, and the doctor looks at
// it in place of the driver's.
std::optional<GpuMachine> simulated_machine();

}  // namespace shale
