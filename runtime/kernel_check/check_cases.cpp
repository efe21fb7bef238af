#include "shale/base/gpu_model.h"
#include "shale/runtime/kernel_check/cases.h"
#include "shale/runtime/kernel_check/check.h"

namespace shale::kernel_check {
namespace {

void add_layers(const Size& size, DType dtype, std::vector<KernelCase>& out) {
  Cases cases(size, dtype, out);
  cases.add_gemms();
  cases.add_swiglu();
  cases.add_fp8(DeviceType::kEmu);
  cases.add_norms();
  cases.add_tokens();
  cases.add_elementwise();
  cases.add_pointwise();
  cases.add_dimension_ops();
  cases.add_experts();
  cases.add_attention();
}

void add_flat(int64_t elements, DType dtype, std::vector<KernelCase>& out) {
  FlatCases flat(elements, dtype, out);
  flat.add_optimizers();
  flat.add_adafactor();
  flat.add_reductions();
  flat.add_rest();
}

}  // namespace

std::vector<KernelCase> check_cases(int arch, bool real_sizes) {
  std::vector<KernelCase> out;
  const bool has_bf16 = arch >= kFirstWithBF16;
  if (real_sizes) {
    const DType dtype = has_bf16 ? DType::kBF16 : DType::kF16;
    add_layers({"512x768", 1, 512, 768, 12, 4000, 4096}, dtype, out);
    Cases({"d128/t1024", 1, 1024, 256, 2, 0, 0}, dtype, out)
        .add_attention_variants(DeviceType::kCuda);
    Cases({"224", 1, 1, 1, 1, 0, 0}, dtype, out).add_images(DeviceType::kCuda);
    add_flat(1 << 20, dtype, out);
    return out;
  }
  std::vector<DType> dtypes = {DType::kF32, DType::kF16};
  if (has_bf16) dtypes.push_back(DType::kBF16);
  for (const DType dtype : dtypes) {
    for (const int64_t n : {72, 136}) add_gemm_tiles(n, dtype, out);
    add_layers({"48x64", 2, 24, 64, 1, 100, 128}, dtype, out);
    for (const int64_t head_size : {64, 128}) {
      Cases({cat("d", head_size, "/t200"), 1, 200, head_size, 1, 0, 0}, dtype, out)
          .add_attention_variants(DeviceType::kEmu);
    }
    Cases({"small", 1, 1, 1, 1, 0, 0}, dtype, out).add_images(DeviceType::kEmu);
    add_flat(5000, dtype, out);
  }
  add_single_cases(5000, out);
  return out;
}

}  // namespace shale::kernel_check
