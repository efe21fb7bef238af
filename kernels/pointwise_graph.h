#pragma once

#include <initializer_list>
#include <span>
#include <vector>

#include "shale/kernels/pointwise.h"

namespace shale::kernels {

// Number of arguments of an op, and its name in messages.
int arity_of(PointwiseOp op);
const char* name_of(PointwiseOp op);

// A graph of elementwise ops. Each op takes values that were made before it; a value is identified
// by its number.
class PointwiseGraph {
 public:
  struct Value {
    PointwiseOp op = PointwiseOp::kConstant;
    DType dtype = DType::kF32;  // dtype the result is rounded to
    std::array<int, 3> args{};
    int input = 0;    // kLoad: index of the input
    float value = 0;  // kConstant: the number
  };

  int input(DType dtype);
  int constant(float value);
  // Applies `op` to the values `args` and rounds to `dtype`; returns the number of the new value.
  int apply(PointwiseOp op, DType dtype, std::span<const int> args);
  int apply(PointwiseOp op, DType dtype, std::initializer_list<int> args) {
    return apply(op, dtype, std::span<const int>(args.begin(), args.size()));
  }

  // Like apply(), but returns an existing value if there is an equal one.
  int apply_once(PointwiseOp op, DType dtype, std::initializer_list<int> args);

  const std::vector<Value>& values() const { return values_; }
  const Value& at(int value) const { return values_[size_t(value)]; }
  int inputs() const { return inputs_; }

  // Returns a program that computes only what the values `outputs` need and outputs them in order.
  // Throws ShapeError, which names `what`, if a program cannot have that many steps, registers,
  // inputs or outputs.
  PointwiseProgram compile(const char* what, const std::vector<int>& outputs) const;

 private:
  std::vector<Value> values_;
  int inputs_ = 0;
};

}  // namespace shale::kernels
