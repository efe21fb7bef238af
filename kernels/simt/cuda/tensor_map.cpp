#include "shale/kernels/simt/cuda/tensor_map.h"

#include "shale/base/error.h"
#include "shale/kernels/simt/cuda/driver.h"

namespace shale::kernels::cuda::simt {
namespace {

using Encode = decltype(&cuTensorMapEncodeTiled);

CUtensorMapDataType type_of(DType dtype) {
  switch (dtype) {
    case DType::kBF16: return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    case DType::kF16: return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    case DType::kU8: return CU_TENSOR_MAP_DATA_TYPE_UINT8;
    default: return CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
  }
}

}  // namespace

TensorMap make_tensor_map(const TensorMapSpec& spec) {
  static const auto encode =
      reinterpret_cast<Encode>(find_driver_function("cuTensorMapEncodeTiled", 12000));
  check_tensor_map(spec);
  cuuint64_t sizes[kMaxTensorMapDims] = {}, stride_bytes[kMaxTensorMapDims] = {};
  cuuint32_t box[kMaxTensorMapDims] = {}, steps[kMaxTensorMapDims] = {};
  for (int d = 0; d < spec.dims; ++d) {
    sizes[d] = static_cast<cuuint64_t>(spec.sizes[d]);
    box[d] = static_cast<cuuint32_t>(spec.box[d]);
    steps[d] = 1;
    // The stride of dimension 0 is implicit.
    if (d > 0) {
      stride_bytes[d - 1] = static_cast<cuuint64_t>(spec.strides[d] * dtype_size(spec.dtype));
    }
  }
  TensorMap map{};
  const CUresult result = encode(
      &map, type_of(spec.dtype), static_cast<cuuint32_t>(spec.dims), const_cast<void*>(spec.data),
      sizes, stride_bytes, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
      spec.swizzle ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_NONE,
      // Kernels use the boxes of a row one after the other, so the L2 cache fetches 256 bytes: a
      // line of this box, 128 bytes, and one of the next box.
      CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) {
    throw InternalError(cat("cuda: cuTensorMapEncodeTiled fails with ", static_cast<int>(result),
                            " for ", spec.dims, " dimensions"));
  }
  return map;
}

}  // namespace shale::kernels::cuda::simt
