#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "shale/base/device.h"
#include "shale/base/dtype.h"

namespace shale {

// Properties of the GPUs of one compute capability that kernels and their launches need (CUDA C++
// Programming Guide, "Technical Specifications per Compute Capability").
struct GpuModel {
  int arch = 0;                   // compute capability times ten
  const char* examples = "";      // GPUs with this compute capability
  size_t block_shared_bytes = 0;  // maximum shared memory of a block, static objects included
  int64_t multiprocessors = 0;    // number of multiprocessors of the first GPU in `examples`
  bool emulated = false;          // can be emulated by --device emu:<arch>
};

// Oldest compute capability that kernels are compiled for. Earlier ones have no 16 x 8 x 8 mma.
inline constexpr int kOldestArch = 75;

// First compute capability with bf16 and with asynchronous copies from global to shared memory.
inline constexpr int kFirstWithBF16 = 80;

// Maximum shared memory of a block on graphics GPUs of compute capability 8.0 and later, and on
// GPUs of 7.5, which have the least. Kernels that run on all GPUs have a variant for each of these
// limits.
inline constexpr size_t kGraphicsBlockShared = size_t{99} << 10;
inline constexpr size_t kLeastBlockShared = size_t{64} << 10;

const std::vector<GpuModel>& gpu_models();  // oldest first

// Returns the model of a compute capability. Treats an unknown one like a graphics GPU.
GpuModel gpu_model(int arch);

// Returns whether kernels of the device support bf16. CPUs always do (fast with AVX512-BF16 or AMX,
// see `shale doctor`), GPUs from compute capability 8.0 on.
bool supports_bf16(const Device& device);

// Throws UnavailableError for bf16 on a GPU without it, and suggests a dtype that works. `what`
// begins the message: "--dtype bf16".
void check_dtype_of(const Device& device, DType dtype, std::string_view what);

// Returns whether the GPU's driver has to compile the kernels from PTX. Machine code for
// `kernel_arch` runs only on GPUs with the same major version.
bool driver_compiles(const Device& gpu, int kernel_arch);

// Describes the kernels that a run uses on a GPU: "machine code for 8.0"; or PTX that the driver
// compiles, with the build option that avoids this; or why there are no kernels (below
// kOldestArch).
std::string kernels_text(const Device& gpu, int kernel_arch);

// Compute capability as text: "8.6".
std::string capability_text(int arch);

// emulated_names() lists the emulated GPUs ("emu:80", ...). emulated_device() returns the one with
// this name and throws ConfigError for any other name.
std::vector<std::string> emulated_names();
Device emulated_device(std::string_view name);

// Values of --device: "auto", "cpu", "cuda", "emu" and emulated_names().
std::vector<std::string> device_choices();

}  // namespace shale
