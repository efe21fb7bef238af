#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "shale/base/dtype.h"
#include "shale/base/exec.h"
#include "shale/test/kernels/simt/primitives.h"

namespace shale::test {

// An array, its boxes, and the positions where they are copied: in elements, innermost first.
struct HopperBoxes {
  DType dtype = DType::kBF16;
  int dims = 2;
  bool swizzle = true;
  std::array<int, 4> sizes{}, strides{}, box{};
  std::array<std::array<int, 4>, 3> places{};
};

// Operands of a wgmma test: a [64, 64] times b [64, columns].
struct HopperProduct {
  DType dtype = DType::kBF16;
  int columns = 8;
  bool a_registers = false, a_mn_major = false, b_mn_major = false;
};

// Content of `out` before a test stores to it: 1 as f32.
inline constexpr uint32_t kNotStored = 0x3f800000u;

// Numbers of phases and of rounds in the kernels "mbarrier phases" and "roles" of primitives90.cu.
inline constexpr int kPhases = 12, kRounds = 12;

}  // namespace shale::test

// Functions of test/kernels/simt/primitives90.cu, for each backend.
namespace shale::kernels::emu {
// Without `store`, loads the boxes at all three positions, and writes shared memory to `out` after
// each. With `store`, stores `in` as the boxes at the first two positions of the array `out`.
void run_hopper_boxes(const Exec& exec, const test::HopperBoxes& boxes, bool store,
                      const uint32_t* in, uint32_t* out, int out_words);
// Copies `bytes` bytes from `in` to `out`, or adds them as f32.
void run_hopper_runs(const Exec& exec, bool add, const uint32_t* in, uint32_t* out, int bytes);
// Returns the kernel of a product, or null if no test uses that product.
test::RunPrimitive find_wgmma(const test::HopperProduct& product);
// Returns the kernel of a name such as "mbarrier phases", "roles", "wgmma k-major bf16" or "wgmma
// e4m3 e5m2"; null for any other name.
test::RunPrimitive find_hopper_primitive(std::string_view name);
}  // namespace shale::kernels::emu
namespace shale::kernels::cuda {
void run_hopper_boxes(const Exec& exec, const test::HopperBoxes& boxes, bool store,
                      const uint32_t* in, uint32_t* out, int out_words);
void run_hopper_runs(const Exec& exec, bool add, const uint32_t* in, uint32_t* out, int bytes);
test::RunPrimitive find_wgmma(const test::HopperProduct& product);
test::RunPrimitive find_hopper_primitive(std::string_view name);
}  // namespace shale::kernels::cuda
