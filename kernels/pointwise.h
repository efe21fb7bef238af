#pragma once

#include <array>

#include "shale/base/view.h"
#include "shale/kernels/pointwise_op.h"
#include "shale/kernels/slot.h"

namespace shale::kernels {

inline constexpr int kMaxPointwiseSteps = 160;
inline constexpr int kMaxPointwiseRegisters = 24;
inline constexpr int kMaxPointwiseInputs = 12;
inline constexpr int kMaxPointwiseOutputs = 8;

// registers[to] = op(registers[a], registers[b], registers[c]), computed in f32 and rounded to
// dtype.
struct PointwiseStep {
  PointwiseOp op = PointwiseOp::kConvert;
  DType dtype = DType::kF32;
  uint8_t to = 0, a = 0, b = 0, c = 0;
  uint8_t operand = 0;  // kLoad: index of the input; kStore: index of the output
  float value = 0;      // kConstant: the number
};

// A chain of elementwise ops that runs for each element of a shape. Constants come first, and their
// registers are never overwritten. PointwiseGraph (kernels/pointwise_graph.h) makes programs.
struct PointwiseProgram {
  std::array<PointwiseStep, kMaxPointwiseSteps> steps{};
  int count = 0;
  int registers = 0;
  int constants = 0;  // number of leading kConstant steps
  int inputs = 0, outputs = 0;

  bool loads(int input) const;  // true if a step reads that input
};

// outputs = program(inputs), in one pass over memory. Results are rounded after each step, so a
// chain has the same bits as its ops run one by one.
struct PointwiseArgs {
  const PointwiseProgram* program = nullptr;  // must be valid until the call returns
  // Each has the shape of the outputs, with strides of 0 along broadcast dimensions; f32, bf16, f16
  // or u8. Inputs that no step loads may be omitted.
  std::array<View, kMaxPointwiseInputs> inputs{};
  // Contiguous, of one shape; f32, bf16, f16, or u8 for results of comparisons. They must not
  // overlap the inputs.
  std::array<View, kMaxPointwiseOutputs> outputs{};
  // GPUs: compiles the program at its first use instead of interpreting it.
  bool compiled = false;
};

// Throws InternalError for an invalid program.
void check_args(const PointwiseArgs& a);

inline Slot<PointwiseArgs> pointwise{"pointwise"};

// The outputs' dimensions, outermost first, without those of size 1, and the strides in them of
// each input that is not dense. Neighbouring dimensions are merged if these strides allow it.
struct PointwiseDims {
  int count = 0;
  std::array<int64_t, kMaxDims> size{};
  std::array<std::array<int64_t, kMaxPointwiseInputs>, kMaxDims> stride{};  // in elements
  std::array<bool, kMaxPointwiseInputs> dense{};  // true if output element i reads input element i

  explicit PointwiseDims(const PointwiseArgs& args);
};

}  // namespace shale::kernels
