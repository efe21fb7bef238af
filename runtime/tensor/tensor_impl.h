#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "shale/runtime/tensor/tensor.h"

namespace shale {

struct Fp8InputOperands;
struct Fp8Weight;
struct Node;
struct PackedConvWeights;
struct Recipe;
class RowPieces;

// A leaf's values in another dtype, which somebody may still hold (amp::Autocast).
struct LowCopy {
  std::weak_ptr<Storage> storage;
  std::shared_ptr<uint64_t> counter;  // of the copy's versions
  uint64_t version = 0;               // of the leaf
  DType dtype = DType::kF32;
};

// The gradient of a leaf: where it lives and who wants to know when it is complete.
struct LeafState {
  std::string name;        // for messages; the parameter's, if it is one
  Tensor grad;             // storage; holds a value only if has_value
  bool has_value = false;  // false: the next gradient is written, not added
  // Gives `grad` its storage when the first gradient arrives; null: a dense f32 tensor.
  std::function<Tensor()> allocate_grad;
  // Called once per backward, after the last gradient for this leaf was added.
  std::vector<std::function<void()>> ready_hooks;
  LowCopy low_copy;
  // Of a weight that several calls share, conv2d's and linear()'s with fp8 operands.
  std::shared_ptr<PackedConvWeights> packed;
  std::shared_ptr<Fp8Weight> fp8;

  // Gives values that have none their memory, when somebody asks for it; null: nobody can.
  std::function<void()> make_values;

  // Forgets copies of the values, whose memory goes.
  void drop_copies() {
    packed.reset();
    fp8.reset();
    make_values = nullptr;
  }
};

// What Tensor handles share.
struct TensorImpl {
  Context* context = nullptr;
  std::shared_ptr<Storage> storage;  // null: none yet (a parameter before materialisation)
  int64_t offset = 0;                // in elements
  Shape shape;
  Shape strides;
  DType dtype = DType::kF32;
  std::shared_ptr<uint64_t> version = std::make_shared<uint64_t>(0);  // shared with views
  // Shared with views as well: whether there are two tensors with histories of their own over this
  // memory. A change in place through one would not be in the history of the other.
  std::shared_ptr<bool> aliased = std::make_shared<bool>(false);

  bool requires_grad = false;
  std::shared_ptr<Node> grad_fn;  // null: a leaf, or no history
  int output = 0;                 // which output of grad_fn this is
  std::unique_ptr<LeafState> leaf;
  std::shared_ptr<const Recipe> recipe;         // null: none, or it is not cheap to compute again
  std::shared_ptr<Fp8InputOperands> fp8_input;  // null: no products share it (SharedInputs)

  // An undefined tensor that was made by no_residual().
  bool is_undefined = false;
  RowPieces* rows_of_sum = nullptr;

  ~TensorImpl();
};

// An undefined tensor, as which the residual of a sum over ranks is passed: the product to which it
// would be added is the summand, whose rows may leave as they are made (nn/distribution.h).
Tensor no_residual(RowPieces& rows);
// Of such a tensor, while they take rows; else null.
RowPieces* rows_of_sum(const Tensor& residual);

// The state of a leaf that requires a gradient, made on first use.
LeafState& leaf_state(const Tensor& leaf);

}  // namespace shale
