#pragma once

#include <concepts>
#include <initializer_list>
#include <vector>

#include "shale/runtime/tensor/autograd_state.h"
#include "shale/runtime/tensor/tensor.h"

namespace shale {

// Argument of a recorded op: a tensor, which may be undefined, or a number.
struct OpArgument {
  OpArgument(const Tensor& x) : tensor(x) {}
  OpArgument(float x) : value(x) {}
  Tensor tensor;  // undefined: the argument is `value`, or an absent optional tensor
  float value = 0;
};

// A named attribute of a recorded op: one number, or several.
struct OpAttribute {
  template <typename T>
  requires std::convertible_to<T, double> OpAttribute(const char* its_name, T value)
      : name(its_name), values{static_cast<double>(value)} {}
  template <typename T>
  OpAttribute(const char* its_name, const std::vector<T>& several)
      : name(its_name), values(several.begin(), several.end()) {}
  const char* name;
  std::vector<double> values;
};

// Receives every op of a context while it is AutogradState::recorder, with all that determines the
// op's result; the tape has neither attributes nor inputs without gradients. An op reports itself:
//
//   if (OpRecorder* to = recorder_of(y)) to->add("softmax", {x}, {y}, {{"log", log}});
//
// after its result exists and before record(), under the name that it passes to record().
class OpRecorder {
 public:
  virtual ~OpRecorder() = default;
  virtual void add(const char* op, const std::vector<OpArgument>& inputs,
                   const std::vector<Tensor>& outputs,
                   const std::vector<OpAttribute>& attributes = {}) = 0;
  // Called when a tensor is filled with values from the host.
  virtual void add_constant(const Tensor& x) = 0;
  // Called by record(), and by ops that cannot be recorded. Throws unless the op has reported these
  // outputs.
  virtual void check(const char* op, const std::vector<Tensor>& inputs,
                     const std::vector<Tensor>& outputs) = 0;
  // Called when the host reads the values of x.
  virtual void read(const Tensor& x) = 0;
  virtual void allocated(const Storage* storage) = 0;
};

// Returns the recorder of y's context; usually null.
inline OpRecorder* recorder_of(const Tensor& y) {
  return y.context().autograd().recorder;
}

}  // namespace shale
