#pragma once

#include <cstdint>

#include "shale/base/dtype.h"

namespace shale::kernels {

inline constexpr int kMaxTensorMapDims = 4;

// An array in device memory and the boxes in which TMA copies it (PTX ISA, "Tensor dimension, size
// and format"). Dimensions are counted from the innermost, whose elements are contiguous.
//
// A box is dense in shared memory, line by line. With `swizzle` a line is 128 bytes, and bits 4 to
// 6 of the address of each 16-byte chunk are xored with bits 7 to 9: chunk c of line r is at c ^ (r
// % 8), if the box starts at a multiple of 1024. Elements outside the array are read as zeros and
// are not written.
struct TensorMapSpec {
  const void* data = nullptr;               // device address, a multiple of 16
  DType dtype = DType::kBF16;               // f32, bf16, f16 or u8
  int dims = 2;                             // 2 to 4
  int64_t sizes[kMaxTensorMapDims] = {};    // elements, 1 or more
  int64_t strides[kMaxTensorMapDims] = {};  // elements; innermost 1, others multiples of 16 bytes
  int64_t box[kMaxTensorMapDims] = {};      // elements, 1 to 256; the innermost a multiple of 16
                                            // bytes, with swizzle 128 bytes
  bool swizzle = true;
};

// Throws ShapeError, which names the problem, for a spec that the hardware does not support.
void check_tensor_map(const TensorMapSpec& spec);

// Bytes of a box: what a load transfers and an mbarrier must expect, even if the box is partly
// outside the array.
int64_t box_bytes(const TensorMapSpec& spec);

}  // namespace shale::kernels
