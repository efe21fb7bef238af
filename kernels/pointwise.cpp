#include "shale/kernels/pointwise.h"

#include <algorithm>

#include "shale/kernels/check.h"

namespace shale::kernels {
namespace {

constexpr const char* kOp = "pointwise";
constexpr std::initializer_list<DType> kDTypes = {DType::kF32, DType::kBF16, DType::kF16,
                                                  DType::kU8};

void check_program(const PointwiseProgram& program) {
  const auto below = [](int value, int limit) { return value >= 0 && value <= limit; };
  bool sound = below(program.count, kMaxPointwiseSteps) &&
               below(program.registers, kMaxPointwiseRegisters) &&
               below(program.inputs, kMaxPointwiseInputs) && program.outputs >= 1 &&
               below(program.outputs, kMaxPointwiseOutputs);
  for (int i = 0; sound && i < program.count; ++i) {
    const PointwiseStep& step = program.steps[size_t(i)];
    sound = std::max({step.to, step.a, step.b, step.c}) < program.registers;
    if (step.op == PointwiseOp::kLoad) sound = sound && step.operand < program.inputs;
    if (step.op == PointwiseOp::kStore) sound = sound && step.operand < program.outputs;
    sound = sound && (step.op == PointwiseOp::kConstant) == (i < program.constants);
  }
  if (sound) return;
  throw InternalError(cat(kOp, ": the program of ", program.count, " steps, ", program.registers,
                          " registers, ", program.inputs, " inputs and ", program.outputs,
                          " outputs is not valid"));
}

bool is_dense(const View& view) {
  return view.strides == contiguous_strides(view.shape) || view.contiguous();
}

}  // namespace

bool PointwiseProgram::loads(int input) const {
  return std::any_of(steps.begin(), steps.begin() + count, [input](const PointwiseStep& step) {
    return step.op == PointwiseOp::kLoad && step.operand == input;
  });
}

void check_args(const PointwiseArgs& a) {
  if (a.program == nullptr) throw InternalError(cat(kOp, ": the program is null"));
  check_program(*a.program);
  const Shape& shape = a.outputs[0].shape;
  for (int i = 0; i < a.program->outputs; ++i) {
    const View& y = a.outputs[size_t(i)];
    check_dtype(kOp, "output", y, kDTypes);
    check_contiguous(kOp, "output", y);
    check_shape(kOp, "output", y, shape);
  }
  for (int i = 0; i < a.program->inputs; ++i) {
    if (!a.program->loads(i)) continue;
    const View& x = a.inputs[size_t(i)];
    if (x.dtype == DType::kI32 || x.dtype == DType::kF64) {
      throw DTypeError(cat(kOp, ": input is ", x, "; cast it to fp32 first"));
    }
    check_dtype(kOp, "input", x, kDTypes);
    check_shape(kOp, "input", x, shape);
  }
}

PointwiseDims::PointwiseDims(const PointwiseArgs& args) {
  const PointwiseProgram& program = *args.program;
  const Shape& shape = args.outputs[0].shape;
  std::array<bool, kMaxPointwiseInputs> strided{};
  for (size_t i = 0; i < size_t(program.inputs); ++i) {
    if (!program.loads(int(i))) continue;
    dense[i] = is_dense(args.inputs[i]);
    strided[i] = !dense[i];
  }
  for (int d = 0; d < shape.ndim(); ++d) {
    if (shape[d] == 1) continue;
    auto& here = stride[size_t(count)];
    bool merges = count > 0;
    for (size_t i = 0; i < strided.size(); ++i) {
      if (!strided[i]) continue;
      here[i] = args.inputs[i].strides[d];
      merges = merges && stride[size_t(count - 1)][i] == shape[d] * here[i];
    }
    if (merges) {
      size[size_t(count - 1)] *= shape[d];
      stride[size_t(count - 1)] = here;
    } else {
      size[size_t(count++)] = shape[d];
    }
  }
  if (count == 0) size[size_t(count++)] = 1;
}

}  // namespace shale::kernels
