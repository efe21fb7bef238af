#include "shale/kernels/pointwise_graph.h"

#include <algorithm>
#include <bit>

#include "shale/base/error.h"

namespace shale::kernels {
namespace {

struct OpInfo {
  PointwiseOp op;
  const char* name;
  int arity;
};

constexpr OpInfo kOps[] = {
    {PointwiseOp::kLoad, "load", 0},
    {PointwiseOp::kConstant, "constant", 0},
    {PointwiseOp::kConvert, "cast", 1},
    {PointwiseOp::kAdd, "add", 2},
    {PointwiseOp::kSub, "sub", 2},
    {PointwiseOp::kMul, "mul", 2},
    {PointwiseOp::kDiv, "div", 2},
    {PointwiseOp::kMaximum, "maximum", 2},
    {PointwiseOp::kMinimum, "minimum", 2},
    {PointwiseOp::kPow, "pow", 2},
    {PointwiseOp::kNeg, "neg", 1},
    {PointwiseOp::kAbs, "abs", 1},
    {PointwiseOp::kExp, "exp", 1},
    {PointwiseOp::kLog, "log", 1},
    {PointwiseOp::kSqrt, "sqrt", 1},
    {PointwiseOp::kRsqrt, "rsqrt", 1},
    {PointwiseOp::kRelu, "relu", 1},
    {PointwiseOp::kSigmoid, "sigmoid", 1},
    {PointwiseOp::kTanh, "tanh", 1},
    {PointwiseOp::kSilu, "silu", 1},
    {PointwiseOp::kSoftplus, "softplus", 1},
    {PointwiseOp::kSin, "sin", 1},
    {PointwiseOp::kCos, "cos", 1},
    {PointwiseOp::kLess, "less", 2},
    {PointwiseOp::kLessEqual, "less_equal", 2},
    {PointwiseOp::kEqual, "equal", 2},
    {PointwiseOp::kWhere, "where", 3},
    {PointwiseOp::kClamp, "clamp", 3},
    {PointwiseOp::kStore, "store", 1},
};

constexpr bool in_order() {
  for (size_t i = 0; i < std::size(kOps); ++i) {
    if (kOps[i].op != static_cast<PointwiseOp>(i)) return false;
  }
  return std::size(kOps) == static_cast<size_t>(PointwiseOp::kStore) + 1;
}
static_assert(in_order());

// Makes the program. Assigns registers to the values that are needed; a value keeps its register
// until its last use.
class Compiler {
 public:
  Compiler(const char* what, const PointwiseGraph& graph, const std::vector<int>& outputs)
      : what_(what), graph_(graph), outputs_(outputs), uses_(graph.values().size()) {
    register_of_.resize(uses_.size(), -1);
  }

  PointwiseProgram run() {
    limit("inputs", graph_.inputs(), kMaxPointwiseInputs);
    limit("outputs", int(outputs_.size()), kMaxPointwiseOutputs);
    program_.inputs = graph_.inputs();
    program_.outputs = int(outputs_.size());
    count_uses();
    merge_roundings();
    for (size_t v = 0; v < uses_.size(); ++v) {
      if (graph_.at(int(v)).op == PointwiseOp::kConstant) place(int(v));
    }
    program_.constants = program_.count;
    for (size_t v = 0; v < uses_.size(); ++v) {
      const PointwiseOp op = graph_.at(int(v)).op;
      if (op != PointwiseOp::kConstant && op != PointwiseOp::kLoad) place(int(v));
    }
    // Stores the outputs that are themselves inputs or constants.
    for (size_t v = 0; v < uses_.size(); ++v) {
      if (graph_.at(int(v)).op == PointwiseOp::kConstant) store(int(v));
      if (uses_[v] > 0 && register_of_[v] < 0) place(int(v));
    }
    return program_;
  }

 private:
  void limit(const char* name, int count, int most) const {
    if (count <= most) return;
    throw ShapeError(cat(what_, ": the chain has ", count, " ", name, ", expected at most ", most));
  }

  void count_uses() {
    for (const int output : outputs_) ++uses_[size_t(output)];
    for (size_t v = uses_.size(); v-- > 0;) {
      if (uses_[v] == 0) continue;
      const auto& value = graph_.at(int(v));
      for (int i = 0; i < arity_of(value.op); ++i) ++uses_[size_t(value.args[size_t(i)])];
    }
  }

  // If the only use of a value is a conversion, the step that computes the value also rounds it.
  void merge_roundings() {
    rounding_of_.assign(uses_.size(), DType::kF32);
    merged_.assign(uses_.size(), false);
    for (size_t v = 0; v < uses_.size(); ++v) {
      const auto& value = graph_.at(int(v));
      if (uses_[v] == 0 || value.op != PointwiseOp::kConvert) continue;
      const auto from = size_t(value.args[0]);
      const auto& source = graph_.at(int(from));
      const bool computed = arity_of(source.op) > 0 && source.dtype == DType::kF32;
      merged_[v] = computed && uses_[from] == 1 && !merged_[from];
      if (merged_[v]) rounding_of_[from] = value.dtype;
    }
  }

  void add(const PointwiseStep& step) {
    limit("steps", program_.count + 1, kMaxPointwiseSteps);
    program_.steps[size_t(program_.count++)] = step;
  }

  uint8_t take_register() {
    const auto found = std::find(taken_.begin(), taken_.end(), false);
    const int number = int(found - taken_.begin());
    limit("values at once", number + 1, kMaxPointwiseRegisters);
    taken_[size_t(number)] = true;
    program_.registers = std::max(program_.registers, number + 1);
    return uint8_t(number);
  }

  // Counts a use of a value. The last use frees its register, unless the value is a constant.
  void release(int value) {
    if (--uses_[size_t(value)] > 0 || graph_.at(value).op == PointwiseOp::kConstant) return;
    taken_[size_t(register_of_[size_t(value)])] = false;
  }

  void place(int number) {
    if (uses_[size_t(number)] == 0) return;
    const auto& value = graph_.at(number);
    if (merged_[size_t(number)]) {
      register_of_[size_t(number)] = register_of_[size_t(value.args[0])];
      return store(number);
    }
    PointwiseStep step{.op = value.op, .dtype = value.dtype, .value = value.value};
    const DType rounding = rounding_of_[size_t(number)];
    if (rounding != DType::kF32) step.dtype = rounding;
    step.operand = uint8_t(value.input);
    std::array<uint8_t*, 3> args = {&step.a, &step.b, &step.c};
    for (int i = 0; i < arity_of(value.op); ++i) {
      const int arg = value.args[size_t(i)];
      if (register_of_[size_t(arg)] < 0) place(arg);  // loads an input just before its first use
      *args[size_t(i)] = uint8_t(register_of_[size_t(arg)]);
    }
    const int arity = arity_of(value.op);
    for (int i = std::max(arity, 1); i < 3; ++i) *args[size_t(i)] = step.a;
    for (int i = 0; i < arity; ++i) release(value.args[size_t(i)]);
    step.to = take_register();
    register_of_[size_t(number)] = step.to;
    add(step);
    if (value.op != PointwiseOp::kConstant) store(number);
  }

  void store(int number) {
    for (size_t i = 0; i < outputs_.size(); ++i) {
      if (outputs_[i] != number) continue;
      const auto from = uint8_t(register_of_[size_t(number)]);
      add({.op = PointwiseOp::kStore, .to = from, .a = from, .operand = uint8_t(i)});
      release(number);
    }
  }

  const char* what_;
  const PointwiseGraph& graph_;
  const std::vector<int>& outputs_;
  std::vector<int> uses_;  // remaining uses of each value
  std::vector<int> register_of_;
  std::vector<DType> rounding_of_;  // dtype to which a value's step also rounds; f32: none
  std::vector<bool> merged_;        // true for a conversion that the step of its argument does
  std::array<bool, kMaxPointwiseRegisters + 1> taken_{};
  PointwiseProgram program_;
};

}  // namespace

int arity_of(PointwiseOp op) {
  return kOps[static_cast<size_t>(op)].arity;
}

const char* name_of(PointwiseOp op) {
  return kOps[static_cast<size_t>(op)].name;
}

int PointwiseGraph::input(DType dtype) {
  values_.push_back({.op = PointwiseOp::kLoad, .dtype = dtype, .input = inputs_++});
  return int(values_.size()) - 1;
}

int PointwiseGraph::constant(float value) {
  for (size_t i = 0; i < values_.size(); ++i) {
    const Value& other = values_[i];
    // Compares bits, so that 0 and -0 are different constants.
    if (other.op == PointwiseOp::kConstant &&
        std::bit_cast<uint32_t>(other.value) == std::bit_cast<uint32_t>(value)) {
      return int(i);
    }
  }
  values_.push_back({.op = PointwiseOp::kConstant, .value = value});
  return int(values_.size()) - 1;
}

int PointwiseGraph::apply(PointwiseOp op, DType dtype, std::span<const int> args) {
  if (int(args.size()) != arity_of(op)) {
    throw InternalError(
        cat("pointwise: ", name_of(op), " of ", args.size(), " values, expected ", arity_of(op)));
  }
  Value value{.op = op, .dtype = dtype};
  std::copy(args.begin(), args.end(), value.args.begin());
  values_.push_back(value);
  return int(values_.size()) - 1;
}

int PointwiseGraph::apply_once(PointwiseOp op, DType dtype, std::initializer_list<int> args) {
  for (size_t v = 0; v < values_.size(); ++v) {
    const Value& other = values_[v];
    const bool same = other.op == op && other.dtype == dtype &&
                      std::equal(args.begin(), args.end(), other.args.begin());
    if (same) return int(v);
  }
  return apply(op, dtype, args);
}

PointwiseProgram PointwiseGraph::compile(const char* what, const std::vector<int>& outputs) const {
  return Compiler(what, *this, outputs).run();
}

}  // namespace shale::kernels
