#pragma once

#include <cstdint>

#include "shale/base/dtype.h"

namespace shale::kernels {

inline constexpr int kMaxTensorMapDims = 4;

// An array in device memory, and the boxes in which the bulk copy engine moves it (PTX ISA, "Tensor
// dimension, size and format"). Dimensions count from the innermost, whose elements are neighbours.
//
// A box lies in shared memory line by line, without gaps. With `swizzle` a line is 128 bytes and
// each 16-byte chunk of it lies where bits 4 to 6 of its address are xored with bits 7 to 9: chunk
// c of line r at c ^ (r % 8), if the box starts at a multiple of 1024. Elements outside the array
// are read as zeros and are not written.
struct TensorMapSpec {
  const void* data = nullptr;               // a multiple of 16
  DType dtype = DType::kBF16;               // f32, bf16, f16 or u8
  int dims = 2;                             // 2 to 4
  int64_t sizes[kMaxTensorMapDims] = {};    // elements, 1 or more
  int64_t strides[kMaxTensorMapDims] = {};  // elements; of the innermost 1, of others 16-byte lines
  int64_t box[kMaxTensorMapDims] = {};      // elements, 1 to 256; the innermost a multiple of 16
                                            // bytes, with swizzle 128 bytes
  bool swizzle = true;
};

// Throws ShapeError for what the hardware cannot do, naming it.
void check_tensor_map(const TensorMapSpec& spec);

// Bytes of a box: what a load brings, and an mbarrier expects, wherever the box lies.
int64_t box_bytes(const TensorMapSpec& spec);

}  // namespace shale::kernels
