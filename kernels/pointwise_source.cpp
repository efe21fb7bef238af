#include "shale/kernels/pointwise_source.h"

#include <cmath>
#include <cstdio>

#include "shale/base/error.h"
#include "shale/kernels/pointwise_graph.h"

namespace shale::kernels {
namespace {

const char* type_name(DType dtype) {
  switch (dtype) {
    case DType::kBF16: return "bf16";
    case DType::kF16: return "f16";
    case DType::kU8: return "uint8_t";
    default: return "float";
  }
}

// The number as a literal that is exact to the last bit.
std::string literal(float value) {
  if (std::isnan(value)) return "kQuietNan";
  if (std::isinf(value)) return value < 0 ? "-kPlusInfinity" : "kPlusInfinity";
  char text[40];
  std::snprintf(text, sizeof text, "%af", static_cast<double>(value));
  return text;
}

std::string load_of(const PointwiseArgs& args, const PointwiseStep& step) {
  const DType dtype = args.inputs[step.operand].dtype;
  return cat("load_four<", type_name(dtype), ">(operands, ", int(step.operand), ", i, count, r",
             int(step.to), ".at);");
}

std::string store_of(const PointwiseArgs& args, const PointwiseStep& step) {
  const DType dtype = args.outputs[step.operand].dtype;
  return cat("store_four<", type_name(dtype), ">(operands, ", int(step.operand), ", i, count, r",
             int(step.a), ".at);");
}

std::string arithmetic_of(const PointwiseStep& step) {
  std::string value = cat("apply(PointwiseOp(", int(step.op), "), r", int(step.a), ", r",
                          int(step.b), ", r", int(step.c), ")");
  const bool rounds = step.dtype == DType::kBF16 || step.dtype == DType::kF16;
  if (rounds) value = cat("rounded<", type_name(step.dtype), ">(", value, ")");
  return cat("r", int(step.to), " = ", value, ";  // ", name_of(step.op));
}

std::string line_of(const PointwiseArgs& args, const PointwiseStep& step) {
  switch (step.op) {
    case PointwiseOp::kLoad: return load_of(args, step);
    case PointwiseOp::kStore: return store_of(args, step);
    case PointwiseOp::kConstant:
      return cat("r", int(step.to), " = like(Four{}, ", literal(step.value), ");");
    default: return arithmetic_of(step);
  }
}

}  // namespace

std::string pointwise_source(const PointwiseArgs& args, const std::string& name) {
  const PointwiseProgram& program = *args.program;
  std::string source = cat("__global__ void __launch_bounds__(", kPointwiseSourceThreads, ")\n    ",
                           name, "(const __grid_constant__ PointwiseOperands operands) {\n",
                           "  await_previous_grid();\n  const int64_t i = (blockIdx.x * int64_t{",
                           kPointwiseSourceThreads, "} + threadIdx.x) * 4;\n",
                           "  const int64_t left = operands.n - i;\n  if (left <= 0) return;\n",
                           "  const int count = left < 4 ? static_cast<int>(left) : 4;\n  Four r0");
  for (int r = 1; r < program.registers; ++r) source += cat(", r", r);
  source += ";\n";
  for (int s = 0; s < program.count; ++s) {
    source += cat("  ", line_of(args, program.steps[size_t(s)]), "\n");
  }
  return source + "}\n";
}

}  // namespace shale::kernels
