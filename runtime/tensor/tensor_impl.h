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

// Copy of a leaf's values in another dtype (amp::Autocast). Its memory exists only while something
// else holds it.
struct LowCopy {
  std::weak_ptr<Storage> storage;
  std::shared_ptr<uint64_t> counter;  // version counter of the copy
  uint64_t version = 0;               // version of the leaf when it was copied
  DType dtype = DType::kF32;
};

// State of a leaf: its gradient, hooks to call when the gradient is complete, and copies of its
// values.
struct LeafState {
  std::string name;        // name in messages; a parameter's full name
  Tensor grad;             // memory of the gradient; valid only if has_value
  bool has_value = false;  // false: the next gradient is written instead of added
  // Allocates `grad` when the first gradient arrives. Null: `grad` becomes a dense f32 tensor.
  std::function<Tensor()> allocate_grad;
  // Called once per backward, after the last gradient for this leaf was added.
  std::vector<std::function<void()>> ready_hooks;
  LowCopy low_copy;
  // Converted weights that several uses share: packed weights of conv2d, fp8 weights of linear().
  std::shared_ptr<PackedConvWeights> packed;
  std::shared_ptr<Fp8Weight> fp8;

  // Allocates and fills the leaf's values on first use; null: the values cannot be made later.
  std::function<void()> make_values;

  // Drops copies of the values, because the memory of the values goes away.
  void drop_copies() {
    packed.reset();
    fp8.reset();
    make_values = nullptr;
  }
};

// Whether other tensors, with histories of their own, use the same memory.
enum class Sharing : uint8_t {
  kNone,
  kViews,   // other tensors are recorded views or their base; copy_() updates their histories
  kHidden,  // copy_() cannot update the histories of other tensors, so changes in place are errors
};

// State that Tensor handles share.
struct TensorImpl {
  Context* context = nullptr;
  std::shared_ptr<Storage> storage;  // null: no memory yet (a parameter before materialisation)
  int64_t offset = 0;                // offset in the storage, in elements
  Shape shape;
  Shape strides;
  DType dtype = DType::kF32;
  // number of in-place changes; shared with views
  std::shared_ptr<uint64_t> version = std::make_shared<uint64_t>(0);
  // shared with views
  std::shared_ptr<Sharing> sharing = std::make_shared<Sharing>(Sharing::kNone);
  // If this tensor is a recorded view: the dense tensor that it views; else null.
  std::shared_ptr<TensorImpl> base;
  // Number of in-place changes that the history includes. If the base of a view has more, the view
  // is recorded again (update_view()).
  uint64_t edition = 0;

  bool requires_grad = false;
  std::shared_ptr<Node> grad_fn;  // op that made the tensor; null: a leaf, or no history
  int output = 0;                 // index among the outputs of grad_fn
  std::unique_ptr<LeafState> leaf;
  std::shared_ptr<const Recipe> recipe;  // null: the tensor is not cheap to recompute
  // fp8 operands shared by several matmuls (SharedInputs); null: none
  std::shared_ptr<Fp8InputOperands> fp8_input;

  // True for an undefined tensor made by no_residual().
  bool is_undefined = false;
  RowPieces* rows_of_sum = nullptr;

  ~TensorImpl();
};

// Returns an undefined tensor to pass as the residual of a matmul whose result is summed over
// ranks. It allows the matmul to send rows of the result as soon as they are computed
// (nn/distribution.h).
Tensor no_residual(RowPieces& rows);
// Returns the pieces of a tensor made by no_residual() while they still accept rows; else null.
RowPieces* rows_of_sum(const Tensor& residual);

// If the base of a view has changed, and gradients are recorded, records the view again. Called
// before a history is used.
void update_view(const Tensor& view);

// Returns the state of a leaf that requires a gradient. Creates it on first use.
LeafState& leaf_state(const Tensor& leaf);

}  // namespace shale
