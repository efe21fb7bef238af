#pragma once

#include <initializer_list>
#include <span>
#include <vector>

#include "shale/kernels/pointwise.h"

namespace shale::kernels {

// How many arguments an op takes, and its name in messages.
int arity_of(PointwiseOp op);
const char* name_of(PointwiseOp op);

// Elementwise ops, each of values made before it. A value is known by its number.
class PointwiseGraph {
 public:
  struct Value {
    PointwiseOp op = PointwiseOp::kConstant;
    DType dtype = DType::kF32;  // what it is rounded to
    std::array<int, 3> args{};
    int input = 0;    // kLoad: which
    float value = 0;  // kConstant
  };

  int input(DType dtype);
  int constant(float value);
  // op of values, rounded to dtype.
  int apply(PointwiseOp op, DType dtype, std::span<const int> args);
  int apply(PointwiseOp op, DType dtype, std::initializer_list<int> args) {
    return apply(op, dtype, std::span<const int>(args.begin(), args.size()));
  }

  // The same, or the value that is just that already.
  int apply_once(PointwiseOp op, DType dtype, std::initializer_list<int> args);

  const std::vector<Value>& values() const { return values_; }
  const Value& at(int value) const { return values_[size_t(value)]; }
  int inputs() const { return inputs_; }

  // What computes these values, and nothing that they do not need. Its outputs are theirs, in
  // order. Throws ShapeError, naming `what`, if that takes more steps or registers, or has more
  // inputs or outputs, than a program may have.
  PointwiseProgram compile(const char* what, const std::vector<int>& outputs) const;

 private:
  std::vector<Value> values_;
  int inputs_ = 0;
};

}  // namespace shale::kernels
