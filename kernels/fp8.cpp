#include "shale/kernels/fp8.h"

#include <algorithm>

#include "shale/base/gpu_model.h"
#include "shale/kernels/check.h"

namespace shale::kernels {
namespace {

// Checks that lines are dense, are at least `stride` apart, and can be copied by TMA (16-byte
// multiples).
void check_lines(const char* op, const char* name, const View& view, int64_t stride) {
  if (view.numel() == 0) return;
  const int64_t bytes = dtype_size(view.dtype);
  if (view.stride(1) != 1 && view.size(1) > 1) {
    throw ShapeError(cat(op, ": ", name, " is ", view, " with strides ", view.strides,
                         ", expected stride 1 in the last dimension"));
  }
  const int64_t unit = bytes == 1 ? 16 : kFp8Block;
  if (view.stride(0) < stride || view.stride(0) % unit != 0) {
    throw ShapeError(cat(op, ": lines of ", name, ", ", view, ", are ", view.stride(0),
                         " elements apart, expected a multiple of ", unit, ", at least ", stride));
  }
  if (reinterpret_cast<uintptr_t>(view.data) % 16 != 0) {
    throw ShapeError(cat(op, ": the address of ", name, " is not a multiple of 16"));
  }
}

bool has_own_kernels(const Device& device) {
  constexpr int kHopper = 90;
  return device.type == DeviceType::kCpu || device.arch == kHopper;
}

}  // namespace

void check_fp8_operand(const char* op, const char* name, const Fp8Operand& operand) {
  check_dtype(op, name, operand.codes, DType::kU8);
  if (operand.codes.ndim() != 2) {
    throw ShapeError(cat(op, ": ", name, " is ", operand.codes, ", expected [lines, length]"));
  }
  const int64_t lines = operand.lines(), length = operand.length();
  check_lines(op, name, operand.codes, fp8_codes_stride(length));
  const std::string scales = cat("scales of ", name);
  check_dtype(op, scales.c_str(), operand.scales, DType::kF32);
  check_shape(op, scales.c_str(), operand.scales, {fp8_scale_rows(length), lines});
  check_lines(op, scales.c_str(), operand.scales, fp8_scales_stride(lines));
}

void check_args(const QuantizeFp8Args& a) {
  constexpr const char* kOp = "quantize_fp8";
  check_dtype(kOp, "x", a.x, DType::kBF16);
  check_contiguous(kOp, "x", a.x);
  if (a.x.ndim() != 2) throw ShapeError(cat(kOp, ": x is ", a.x, ", expected [rows, columns]"));
  if (!a.rows.defined() && !a.columns.defined()) {
    throw ShapeError(cat(kOp, ": neither rows nor columns are requested, expected at least one"));
  }
  const int64_t rows = a.x.size(0), columns = a.x.size(1);
  if (a.rows.defined()) {
    check_fp8_operand(kOp, "rows", a.rows);
    check_shape(kOp, "rows", a.rows.codes, {rows, columns});
  }
  if (a.columns.defined()) {
    check_fp8_operand(kOp, "columns", a.columns);
    check_shape(kOp, "columns", a.columns.codes, {columns, rows});
  }
  const Fp8Operand& one = a.rows.defined() ? a.rows : a.columns;
  if (a.columns.defined() && (a.columns.blocks != one.blocks || a.columns.format != one.format)) {
    throw ShapeError(
        cat(kOp, ": rows and columns have different blocks or formats, expected equal ones"));
  }
  if (one.format == Fp8Format::kE5M2 && one.blocks != Fp8Blocks::kTensor) {
    throw DTypeError(cat(kOp, ": E5M2 is requested in blocks, expected one scale per tensor"));
  }
}

void check_args(const Fp8GemmArgs& a) {
  constexpr const char* kOp = "fp8_gemm";
  check_fp8_operand(kOp, "a", a.a);
  check_fp8_operand(kOp, "b", a.b);
  check_shape(kOp, "b", a.b.codes, {a.b.lines(), a.a.length()});
  if (a.a.blocks == Fp8Blocks::kSquares) {
    throw ShapeError(cat(kOp, ": a has square blocks, expected them only for b"));
  }
  if (a.b.format != Fp8Format::kE4M3) throw DTypeError(cat(kOp, ": b is E5M2, expected E4M3"));
  if (a.a.format == Fp8Format::kE5M2 && a.b.blocks == Fp8Blocks::kLines) {
    throw DTypeError(cat(kOp, ": a is E5M2 and b has kLines, expected kSquares or kTensor for b"));
  }
}

std::string why_no_fp8(const Device& device, Fp8Blocks blocks) {
  if (has_own_kernels(device)) return "";
  const std::string found = capability_text(device.arch);
  if (device.arch < kFirstWithFp8) {
    return cat("fp8 on GPUs needs compute capability ", capability_text(kFirstWithFp8),
               " or later, found ", found);
  }
  if (blocks != Fp8Blocks::kTensor) {
    return cat("scales of blocks need compute capability 9.0 (H100), found ", found);
  }
  if (device.type == DeviceType::kCuda) return "";
  return cat("GPUs of compute capability ", found,
             " multiply fp8 numbers by cuBLASLt, which the emulator cannot run");
}

int64_t fp8_lines_unit(const Device& device) {
  return has_own_kernels(device) ? 1 : 16;
}

void check_fp8_gemm(const Exec& exec, Fp8Blocks blocks) {
  const auto empty = [](DType dtype, const Shape& shape) {
    return View{.data = nullptr, .dtype = dtype, .shape = shape, .strides = {1, 1}};
  };
  const Fp8Operand none = {
      .codes = empty(DType::kU8, {0, 0}), .scales = empty(DType::kF32, {0, 0}), .blocks = blocks};
  fp8_gemm(exec, {.a = none, .b = none, .c = empty(DType::kBF16, {0, 0})});
}

GemmArgs bf16_product(const Fp8GemmArgs& args, bf16* a, bf16* b) {
  const int64_t m = args.a.lines(), n = args.b.lines(), k = args.a.length();
  const auto matrix = [](bf16* data, const Shape& shape, const Shape& strides) {
    return View{.data = data, .dtype = DType::kBF16, .shape = shape, .strides = strides};
  };
  return {.a = matrix(a, {m, k}, {k, 1}),
          .b = matrix(b, {k, n}, {1, k}),
          .c = args.c,
          .accumulate = args.accumulate,
          .bias = args.bias,
          .residual = args.residual};
}

}  // namespace shale::kernels
