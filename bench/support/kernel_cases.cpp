#include "shale/bench/support/kernel_cases.h"

#include "shale/kernels/slot.h"
#include "shale/runtime/kernel_check/cases.h"

namespace shale::bench {
namespace {

// Sizes of the cases for one device type: several numbers of tokens for GPT-2 124M, and small
// models.
struct Sizes {
  std::vector<Size> models;
  int64_t flat;  // elements of a flat buffer of parameters
};

Sizes sizes_for(DeviceType type) {
  constexpr int64_t kBlockElements = 7087872;  // parameters of one block of GPT-2 124M
  switch (type) {
    case DeviceType::kCpu:
      return {{{"1024", 4, 256, 768, 12, 50257, 50304},
               {"2048", 2, 1024, 768, 12, 50257, 50304},
               {"nano", 8, 256, 128, 4, 256, 256}},
              kBlockElements};
    case DeviceType::kCuda:
      // The parameters of the whole model.
      return {{{"16384", 16, 1024, 768, 12, 50257, 50304}}, 124475904};
    case DeviceType::kEmu: break;
  }
  return {{{"tiny", 2, 24, 64, 1, 100, 128}}, 5000};
}

// Adds cases of sizes at which GPU libraries are usually compared: norms of wide rows, Llama's
// feed-forward block, large square GEMMs, attention with 16384 tokens and 2048 columns in heads of
// 64 and 128.
void add_gpu_cases(DType dtype, std::vector<KernelCase>& out) {
  Cases wide({"16384x4096", 1, 16384, 4096, 32, 50257, 50304}, dtype, out);
  wide.add_norms();
  wide.add_swiglu();
  wide.add_fp8(DeviceType::kCuda);
  for (const int64_t head_dim : {64, 128}) {
    for (const int64_t seq : {1024, 2048, 4096, 8192}) {
      const Size size{cat("d", head_dim, "/t", seq), 16384 / seq, seq, 2048, 2048 / head_dim, 0, 0};
      Cases cases(size, dtype, out);
      cases.add_attention();
      if (dtype != DType::kF32) cases.add_attention_families();
      if (seq == 4096) cases.add_attention_variants(DeviceType::kCuda);
      // These cases show which tile fwd_tile() should choose for heads of 128 (`--filter tile_`).
      const bool compares_tiles = head_dim == 128 && seq >= 4096 && dtype != DType::kF32;
      if (compares_tiles) cases.add_attention_tiles();
    }
  }
  for (const int64_t n : {4096, 8192}) add_square_gemms(n, dtype, out);
  if (dtype == DType::kF32) return;
  for (const int64_t width : {768, 1600, 4096}) {
    add_ffn({.tokens = 8192, .width = width}, dtype, DeviceType::kCuda, out);
  }
}

// Adds the same kinds of cases, at sizes that take seconds on the emulator.
void add_emulated_cases(DType dtype, std::vector<KernelCase>& out) {
  add_square_gemms(72, dtype, out);
  if (dtype == DType::kF32) return;
  add_ffn({.tokens = 40, .width = 24}, dtype, DeviceType::kEmu, out);
  for (const int64_t head_dim : {64, 128}) {
    Cases({cat("d", head_dim, "/t40"), 1, 40, head_dim, 1, 0, 0}, dtype, out)
        .add_attention_families();
  }
}

}  // namespace

std::vector<KernelCase> kernel_cases(DeviceType type, const std::vector<DType>& dtypes) {
  const Sizes sizes = sizes_for(type);
  std::vector<KernelCase> out;
  for (const DType dtype : dtypes) {
    for (const Size& size : sizes.models) Cases(size, dtype, out).add_gemms();
    for (const Size& size : sizes.models) Cases(size, dtype, out).add_swiglu();
    for (const Size& size : sizes.models) Cases(size, dtype, out).add_fp8(type);
    for (const Size& size : sizes.models) Cases(size, dtype, out).add_attention();
    for (const Size& size : sizes.models) Cases(size, dtype, out).add_attention_variants(type);
    for (const Size& size : sizes.models) Cases(size, dtype, out).add_norms();
    for (const Size& size : sizes.models) Cases(size, dtype, out).add_tokens();
    for (const Size& size : sizes.models) Cases(size, dtype, out).add_elementwise();
    for (const Size& size : sizes.models) Cases(size, dtype, out).add_pointwise();
    for (const Size& size : sizes.models) Cases(size, dtype, out).add_dimension_ops();
    for (const Size& size : sizes.models) Cases(size, dtype, out).add_experts();
    if (type == DeviceType::kCpu && dtype == DType::kF32) {
      for (const int64_t seq : {2048, 16384}) {
        Cases({cat("d64/t", seq), 1, seq, 64, 1, 0, 0}, dtype, out).add_long_attention();
      }
    }
    Cases(sizes.models.front(), dtype, out).add_images(type);
    FlatCases flat(sizes.flat, dtype, out);
    flat.add_optimizers();
    flat.add_adafactor();
    flat.add_reductions();
    flat.add_rest();
    if (type == DeviceType::kCuda) add_gpu_cases(dtype, out);
    if (type == DeviceType::kEmu) add_emulated_cases(dtype, out);
  }
  add_single_cases(sizes.flat, out);
  return out;
}

std::string missing_family(KernelFamily family, BenchDevice& device) {
  if (family == KernelFamily::kHopper && device.device().arch != 90) {
    const int arch = device.device().arch;
    return cat("kernels for compute capability 9.0, ", to_string(device.device()),
               arch > 0 ? cat(" has ", arch / 10, ".", arch % 10) : " has none");
  }
  if (family == KernelFamily::kVendor && !device.vendor_gemm()) return "cuBLASLt was not found";
  return "";
}

std::vector<std::string> drop_missing_families(std::vector<KernelCase>& cases,
                                               BenchDevice& device) {
  std::vector<std::string> dropped;
  for (int i = 0; i < kKernelFamilies; ++i) {
    const auto family = KernelFamily(i);
    const std::string why = missing_family(family, device);
    if (why.empty()) continue;
    const size_t count =
        std::erase_if(cases, [&](const KernelCase& one) { return one.family == family; });
    if (count > 0) dropped.push_back(cat(count, " of family ", family_name(family), ": ", why));
  }
  return dropped;
}

std::vector<std::string> drop_unfilled(std::vector<KernelCase>& cases, DeviceType type) {
  std::vector<std::string> dropped;
  for (const kernels::SlotBase* slot : kernels::SlotBase::all()) {
    if (slot->filled(type)) continue;
    const auto belongs = [&](const KernelCase& one) { return one.slot == slot->name(); };
    if (std::erase_if(cases, belongs) > 0) dropped.emplace_back(slot->name());
  }
  return dropped;
}

}  // namespace shale::bench
