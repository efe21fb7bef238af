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

// Copy of a leaf's values in another dtype, kept only while something holds it (amp::Autocast).
struct LowCopy {
  std::weak_ptr<Storage> storage;
  std::shared_ptr<uint64_t> counter;  // version counter of the copy
  uint64_t version = 0;               // version of the leaf
  DType dtype = DType::kF32;
};

// Gradient of a leaf: its memory and the hooks to call when it is complete.
struct LeafState {
  std::string name;        // name in messages: that of the parameter
  Tensor grad;             // storage; has a value only if has_value
  bool has_value = false;  // false: the next gradient is written, not added
  // Allocates `grad` when the first gradient arrives; null: a dense f32 tensor.
  std::function<Tensor()> allocate_grad;
  // Called once per backward, after the last gradient for this leaf was added.
  std::vector<std::function<void()>> ready_hooks;
  LowCopy low_copy;
  // State that several uses of a weight share: packed weights of conv2d, fp8 weights of linear().
  std::shared_ptr<PackedConvWeights> packed;
  std::shared_ptr<Fp8Weight> fp8;

  // Allocates and fills the leaf's values on first use; null: the values cannot be made later.
  std::function<void()> make_values;

  // Drops copies of the values, because their memory goes away.
  void drop_copies() {
    packed.reset();
    fp8.reset();
    make_values = nullptr;
  }
};

// Tensors that use the same memory but have separate histories.
enum class Sharing : uint8_t {
  kNone,
  kViews,   // a tensor and its views; copy_() updates their histories
  kHidden,  // others, which would miss a change in place
};

// State that Tensor handles share.
struct TensorImpl {
  Context* context = nullptr;
  std::shared_ptr<Storage> storage;  // null: none yet (a parameter before materialisation)
  int64_t offset = 0;                // offset in the storage, in elements
  Shape shape;
  Shape strides;
  DType dtype = DType::kF32;
  std::shared_ptr<uint64_t> version = std::make_shared<uint64_t>(0);  // shared with views
  std::shared_ptr<Sharing> sharing = std::make_shared<Sharing>(Sharing::kNone);  // shared, too
  // Dense tensor of which this one is a recorded view; null: none.
  std::shared_ptr<TensorImpl> base;
  // Number of in-place changes that the history includes. A view is recorded again (update_view())
  // if its base has more.
  uint64_t edition = 0;

  bool requires_grad = false;
  std::shared_ptr<Node> grad_fn;  // null: a leaf, or no history
  int output = 0;                 // number of this output of grad_fn
  std::unique_ptr<LeafState> leaf;
  std::shared_ptr<const Recipe> recipe;         // null: none, or not cheap to recompute
  std::shared_ptr<Fp8InputOperands> fp8_input;  // null: no matmuls share it (SharedInputs)

  // True for an undefined tensor made by no_residual().
  bool is_undefined = false;
  RowPieces* rows_of_sum = nullptr;

  ~TensorImpl();
};

// An undefined tensor, passed as the residual of a matmul whose result is summed over ranks. The
// rows of that result may be sent as soon as they are computed (nn/distribution.h).
Tensor no_residual(RowPieces& rows);
// Pieces of a tensor made by no_residual(), while they still accept rows; else null.
RowPieces* rows_of_sum(const Tensor& residual);

// Records a view of a changed base again, if gradients are recorded. Called before a history is
// used.
void update_view(const Tensor& view);

// State of a leaf that requires a gradient; created on first use.
LeafState& leaf_state(const Tensor& leaf);

}  // namespace shale
