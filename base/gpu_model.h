#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "shale/base/device.h"
#include "shale/base/dtype.h"

namespace shale {

// What kernels and their launches have to know of GPUs of a compute capability (CUDA C++
// Programming Guide, "Technical Specifications per Compute Capability").
struct GpuModel {
  int arch = 0;                   // compute capability times ten
  const char* examples = "";      // GPUs that have it
  size_t block_shared_bytes = 0;  // most that a block may ask for, its static objects included
  int64_t multiprocessors = 0;    // of the first of the examples
  bool emulated = false;          // --device emu:<arch>
};

// The oldest GPUs that kernels are compiled for: earlier ones have no products of 16 x 8 x 8.
inline constexpr int kOldestArch = 75;

// The first that have bf16, and copies from global to shared memory that go on while a thread
// computes.
inline constexpr int kFirstWithBF16 = 80;

// What a block may ask for on GPUs for graphics, and the least that it may on any GPU: what
// portable kernels must do with.
inline constexpr size_t kGraphicsBlockShared = size_t{99} << 10;
inline constexpr size_t kLeastBlockShared = size_t{64} << 10;

const std::vector<GpuModel>& gpu_models();  // from the oldest

// Of a GPU that is not in the list: as if it were for graphics.
GpuModel gpu_model(int arch);

// Whether kernels of the device take bf16: on CPUs always (fast with AVX512-BF16 or AMX, which
// `shale doctor` shows), on GPUs of compute capability 8.0 or later.
bool supports_bf16(const Device& device);

// Throws UnavailableError for bf16 on a GPU that has none, and says what fits. `what` begins the
// message: "--dtype bf16".
void check_dtype_of(const Device& device, DType dtype, std::string_view what);

// Whether a GPU's driver compiles the kernels, from the PTX of `kernel_arch`, for families later
// than that: machine code runs within its own family alone, that of the same major number.
bool driver_compiles(const Device& gpu, int kernel_arch);

// What a run's kernels are on a GPU: "machine code for 8.0", or PTX that the driver compiles, and
// then which build would have machine code; below kOldestArch why there are none.
std::string kernels_text(const Device& gpu, int kernel_arch);

// "8.6"
std::string capability_text(int arch);

// "emu:80" and so on, and the device of such a name. Throws ConfigError for another name.
std::vector<std::string> emulated_names();
Device emulated_device(std::string_view name);

// What a program's --device takes: "auto", "cpu", "cuda", "emu" and emulated_names().
std::vector<std::string> device_choices();

}  // namespace shale
