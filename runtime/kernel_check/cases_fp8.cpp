#include <bit>

#include "shale/kernels/fp8.h"
#include "shale/kernels/fp8_shard.h"
#include "shale/runtime/kernel_check/cases.h"

namespace shale::kernel_check {
namespace {

using kernels::Fp8Blocks;
using kernels::Fp8Format;

// Returns a zeroed operand for a kernel to write.
kernels::Fp8Operand operand(Operands& o, int64_t lines, int64_t length,
                            Fp8Blocks blocks = Fp8Blocks::kLines,
                            Fp8Format format = Fp8Format::kE4M3) {
  kernels::Fp8Operand made = {
      .codes = o.zeros(DType::kU8, {lines, kernels::fp8_codes_stride(length)}),
      .scales = o.zeros(DType::kF32,
                        {kernels::fp8_scale_rows(length), kernels::fp8_scales_stride(lines)}),
      .blocks = blocks,
      .format = format};
  made.codes.shape = {lines, length};
  made.scales.shape = {kernels::fp8_scale_rows(length), lines};
  return made;
}

// Returns an input of a GEMM with random codes. If blocks are lines, the scales differ from line to
// line; else they are equal.
kernels::Fp8Operand input(Operands& o, int64_t lines, int64_t length,
                          Fp8Blocks blocks = Fp8Blocks::kLines,
                          Fp8Format format = Fp8Format::kE4M3) {
  const Shape codes = {lines, kernels::fp8_codes_stride(length)};
  const Shape scales = {kernels::fp8_scale_rows(length), kernels::fp8_scales_stride(lines)};
  const bool differ = blocks == Fp8Blocks::kLines;
  const auto scale = [differ](int64_t i) { return differ && i % 3 == 0 ? 0.25f : 0.5f; };
  kernels::Fp8Operand made = {.codes = o.codes(codes),
                              .scales = o.values(scales, scale),
                              .blocks = blocks,
                              .format = format};
  made.codes.shape = {lines, length};
  made.scales.shape = {kernels::fp8_scale_rows(length), lines};
  return made;
}

}  // namespace

// Adds the three GEMMs of a layer [4 C, C] and the quantization of their operands.
void Cases::add_fp8(DeviceType device) {
  const int64_t T = s_.tokens(), C = s_.width, out = 4 * C;
  const DType dtype = dtype_;
  if (dtype != DType::kBF16) return;  // quantization takes only bf16
  add<kernels::QuantizeFp8Args>("rows", kernels::quantize_fp8, [=](Operands& o) {
    return kernels::QuantizeFp8Args{.x = o.floats(dtype, {T, C}), .rows = operand(o, T, C)};
  });
  add<kernels::QuantizeFp8Args>("both", kernels::quantize_fp8, [=](Operands& o) {
    return kernels::QuantizeFp8Args{
        .x = o.floats(dtype, {T, C}), .rows = operand(o, T, C), .columns = operand(o, C, T)};
  });
  add<kernels::QuantizeFp8Args>("tensor", kernels::quantize_fp8, [=](Operands& o) {
    return kernels::QuantizeFp8Args{
        .x = o.floats(dtype, {T, C}),
        .rows = operand(o, T, C, Fp8Blocks::kTensor, Fp8Format::kE5M2),
        .columns = operand(o, C, T, Fp8Blocks::kTensor, Fp8Format::kE5M2)};
  });
  add<kernels::QuantizeFp8Args>("squares", kernels::quantize_fp8, [=](Operands& o) {
    return kernels::QuantizeFp8Args{.x = o.floats(dtype, {out, C}),
                                    .rows = operand(o, out, C, Fp8Blocks::kSquares)};
  });
  // Adds the quantization of a weight [4 C, C] for an all-gather. This rank owns the whole weight.
  const auto largest = [=](Operands& o) {
    return o.integers(kernels::fp8_weight_blocks(Fp8Blocks::kSquares, {out, C}),
                      [](int64_t) { return std::bit_cast<int32_t>(1.0f); });
  };
  add<kernels::Fp8LargestArgs>("weight", kernels::fp8_largest, [=](Operands& o) {
    return kernels::Fp8LargestArgs{
        .x = o.floats(DType::kF32, {out * C}), .columns = C, .largest = largest(o)};
  });
  add<kernels::Fp8EncodeArgs>("weight", kernels::fp8_encode, [=](Operands& o) {
    return kernels::Fp8EncodeArgs{.x = o.floats(DType::kF32, {out * C}),
                                  .columns = C,
                                  .largest = largest(o),
                                  .codes = o.zeros(DType::kU8, {out * C})};
  });
  add<kernels::Fp8DecodeArgs>("weight", kernels::fp8_decode, [=](Operands& o) {
    return kernels::Fp8DecodeArgs{
        .codes = o.codes({out, C}), .largest = largest(o), .y = o.zeros(dtype, {out, C})};
  });
  add<kernels::Fp8OperandsArgs>("weight", kernels::fp8_operands, [=](Operands& o) {
    return kernels::Fp8OperandsArgs{.codes = o.codes({out, C}),
                                    .largest = largest(o),
                                    .columns = operand(o, C, out, Fp8Blocks::kSquares)};
  });
  const CaseOptions options = {.family = device == DeviceType::kCpu ? KernelFamily::kOfDevice
                                                                    : KernelFamily::kHopper};
  const auto add_product = [&](const char* name, auto make) {
    const auto vendor = [](KernelDevice& by, const kernels::Fp8GemmArgs& like) {
      return by.vendor_fp8_gemm(like);
    };
    out_.push_back(make_case<kernels::Fp8GemmArgs>(named(name), kernels::fp8_gemm, dtype, make,
                                                   vendor, options));
  };
  add_product("forward", [=](Operands& o) {
    return kernels::Fp8GemmArgs{.a = input(o, T, C),
                                .b = input(o, out, C, Fp8Blocks::kSquares),
                                .c = o.zeros(dtype, {T, out}),
                                .bias = o.floats(dtype, {out})};
  });
  add_product("forward_tensor", [=](Operands& o) {
    return kernels::Fp8GemmArgs{.a = input(o, T, C, Fp8Blocks::kTensor),
                                .b = input(o, out, C, Fp8Blocks::kTensor),
                                .c = o.zeros(dtype, {T, out}),
                                .bias = o.floats(dtype, {out}),
                                .residual = o.floats(dtype, {T, out})};
  });
  add_product("dx", [=](Operands& o) {
    return kernels::Fp8GemmArgs{.a = input(o, T, out),
                                .b = input(o, C, out, Fp8Blocks::kSquares),
                                .c = o.zeros(dtype, {T, C})};
  });
  add_product("dx_tensor", [=](Operands& o) {
    return kernels::Fp8GemmArgs{.a = input(o, T, out, Fp8Blocks::kTensor, Fp8Format::kE5M2),
                                .b = input(o, C, out, Fp8Blocks::kTensor),
                                .c = o.zeros(dtype, {T, C})};
  });
  add_product("dw", [=](Operands& o) {
    return kernels::Fp8GemmArgs{.a = input(o, out, T),
                                .b = input(o, C, T),
                                .c = o.zeros(DType::kF32, {out, C}),
                                .accumulate = true};
  });
  add_product("dw_tensor", [=](Operands& o) {
    return kernels::Fp8GemmArgs{.a = input(o, out, T, Fp8Blocks::kTensor, Fp8Format::kE5M2),
                                .b = input(o, C, T, Fp8Blocks::kTensor),
                                .c = o.zeros(DType::kF32, {out, C}),
                                .accumulate = true};
  });
}

}  // namespace shale::kernel_check
