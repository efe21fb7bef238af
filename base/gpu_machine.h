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
  std::vector<bool> reaches{};  // reaches[i]: this GPU can access the memory of GPU i directly
};

// The GPUs of a machine and the links between them.
struct GpuMachine {
  std::vector<MachineGpu> gpus{};
  std::vector<PciPlace> places() const;
};

// Reads the description of a machine from a folder. It has `sys/`, laid out as /sys, and the file
// `gpus` with a line for each GPU: address, compute capability times ten, the GPUs whose memory it
// can access (`0,1`, or `-`), and name. Throws ConfigError, which names the line.
GpuMachine read_gpu_machine(const std::string& folder);

// Returns the machine that the folder SHALE_MACHINE describes, or nullopt if this variable is not
// set. Emulated GPUs then get the PCI positions of its GPUs, and `shale doctor` reports its GPUs
// instead of the driver's.
std::optional<GpuMachine> simulated_machine();

}  // namespace shale
