#include "shale/kernels/tensor_map_spec.h"

#include "shale/base/error.h"

namespace shale::kernels {
namespace {

constexpr int64_t kAlignment = 16, kSwizzleSpan = 128, kMaxBox = 256;
constexpr int64_t kMaxSize = int64_t{1} << 32, kMaxStride = int64_t{1} << 40;

template <typename... Texts>
void require(bool condition, const Texts&... texts) {
  if (!condition) throw ShapeError(cat("tensor map: ", texts...));
}

}  // namespace

void check_tensor_map(const TensorMapSpec& spec) {
  const int64_t bytes = dtype_size(spec.dtype);
  require(spec.dtype == DType::kF32 || spec.dtype == DType::kBF16 || spec.dtype == DType::kF16 ||
              spec.dtype == DType::kU8,
          "the dtype is ", dtype_name(spec.dtype), ", expected fp32, bf16, fp16 or uint8");
  require(spec.dims >= 2 && spec.dims <= kMaxTensorMapDims, "it has ", spec.dims,
          " dimensions, expected 2 to ", kMaxTensorMapDims);
  require(reinterpret_cast<uintptr_t>(spec.data) % kAlignment == 0,
          "the address of the data is not a multiple of ", kAlignment);
  require(spec.strides[0] == 1, "the innermost stride is ", spec.strides[0], ", expected 1");
  for (int d = 0; d < spec.dims; ++d) {
    require(spec.sizes[d] >= 1 && spec.sizes[d] <= kMaxSize, "size ", d, " is ", spec.sizes[d],
            ", expected 1 to 2^32");
    require(spec.box[d] >= 1 && spec.box[d] <= kMaxBox, "box size ", d, " is ", spec.box[d],
            ", expected 1 to ", kMaxBox);
    const int64_t stride = spec.strides[d] * bytes;
    require(d == 0 || (stride % kAlignment == 0 && stride >= 0 && stride < kMaxStride), "stride ",
            d, " is ", stride, " bytes, expected a multiple of ", kAlignment, " below 2^40");
  }
  const int64_t line = spec.box[0] * bytes;
  require(spec.swizzle ? line == kSwizzleSpan : line % kAlignment == 0, "a line of a box has ",
          line, " bytes, expected ", spec.swizzle ? "128 with swizzle" : "a multiple of 16");
}

int64_t box_bytes(const TensorMapSpec& spec) {
  int64_t bytes = dtype_size(spec.dtype);
  for (int d = 0; d < spec.dims; ++d) bytes *= spec.box[d];
  return bytes;
}

}  // namespace shale::kernels
