#include "shale/kernels/simt/engine/tensor_map.h"

namespace shale::emulator {

TensorMap make_tensor_map(const kernels::TensorMapSpec& spec) {
  kernels::check_tensor_map(spec);
  TensorMap map;
  map.data = static_cast<std::byte*>(const_cast<void*>(spec.data));
  map.element_bytes = static_cast<uint32_t>(dtype_size(spec.dtype));
  map.bytes = static_cast<uint32_t>(kernels::box_bytes(spec));
  map.dims = spec.dims;
  map.swizzle = spec.swizzle;
  for (int d = 0; d < kernels::kMaxTensorMapDims; ++d) {
    const bool used = d < spec.dims;
    map.sizes[d] = used ? spec.sizes[d] : 1;
    map.stride_bytes[d] = used ? spec.strides[d] * map.element_bytes : 0;
    map.box[d] = used ? spec.box[d] : 1;
  }
  return map;
}

}  // namespace shale::emulator
