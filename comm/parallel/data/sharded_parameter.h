#pragma once

#include <optional>
#include <string>
#include <vector>

#include "shale/comm/parallel/data/data_parallel.h"

namespace shale::comm {

// Placement of a tensor along one mesh axis.
struct Placement {
  enum class Kind : uint8_t {
    kReplicate,  // the ranks along the axis have the same elements
    // Ranks have equal parts along `dim`, in rank order. With `groups` > 1 there are `groups` equal
    // blocks along `dim`, such as 3 for fused q, k and v, and ranks have a part of each block.
    kShard,
    // Each process has a range of its part along the other axes, in row-major order. Unlike with
    // PyTorch's Shard(0), ranges may end inside a row, differ in length, and be empty.
    kRange,
    kPartial,  // the tensor is the sum of the ranks' tensors
    kSome,     // some ranks have the whole tensor, other ranks nothing
  };
  std::string axis = {};  // "replica", "pipeline", "shard", "context", "expert" or "tensor"
  int ranks = 1;          // number of mesh ranks along the axis
  Kind kind = Kind::kReplicate;
  int dim = 0;         // only for kShard
  int64_t groups = 1;  // only for kShard
  friend bool operator==(const Placement&, const Placement&) = default;
};
std::string to_string(const Placement& placement);  // "tensor 2: shard(0)"

// Elements [begin, begin + count) of a tensor, in row-major order.
struct ElementRange {
  int64_t begin = 0;
  int64_t count = 0;
  friend bool operator==(const ElementRange&, const ElementRange&) = default;
};

// A parameter of a sharded model as one mesh rank holds it between two steps, like PyTorch's
// DTensor. It is a handle: cheap to copy, and valid as long as the model, which it does not keep
// alive. It cannot be passed to ops, which take Parameter::value; that is whole while the module
// runs.
class ShardedParameter {
 public:
  // parameter: a parameter in the model of any mesh rank of this process, or of another pipeline
  // stage. Throws InternalError for a parameter that is not part of the model.
  ShardedParameter(DataParallel& parallel, const Parameter& parameter);

  const Parameter& parameter() const { return *parameter_; }
  std::string name() const { return parameter_->full_name(); }
  // Shape of the unsharded parameter, and of full(). A mesh rank's part along the axes "tensor" and
  // "expert" has parameter().shape.
  const Shape& shape() const { return parameter_->whole; }

  // Returns one placement for each axis with more than one mesh rank, slowest axis first. A
  // parameter of distributed experts has the axis "expert" in place of "context" and "tensor"; its
  // axis "shard" then has the ranks with the same experts.
  std::vector<Placement> placements() const { return placements(/*of_gradient=*/false); }
  // Placements of the gradient that backward leaves in Parameter::value, before it is reduced.
  // After finish_gradients(), local_grad() has the placements of the parameter.
  std::vector<Placement> gradient_placements() const { return placements(/*of_gradient=*/true); }

  // Range of elements of parameter().shape that local() has.
  ElementRange local_range() const;
  // This mesh rank's elements as [count]: f32 masters, or the values of a frozen parameter.
  // Undefined if the rank has no elements. Returns the memory itself, which is in host memory if it
  // is offloaded; all context ranks in the process share it. Call local_changed() after writing to
  // it.
  Tensor local() const;
  // Gradient of local(), as optimizers see it after finish_gradients(): [count], f32 or bf16.
  // Undefined if there is none.
  Tensor local_grad() const;

  // Gathers all elements on every rank: f32, on the device, in shape(). Collective over all ranks
  // that have parts of the model. Call it outside of HostedRanks::run().
  Tensor full() const;
  // Sets the elements of all mesh ranks in this process from `whole`: f32 in host memory, in
  // shape(). Not collective, but every rank must call it before the parameter is used. Throws
  // ShapeError and DTypeError.
  void distribute(const View& whole) const;
  // Updates the compute-dtype parameter after writes to local(). Every rank must call it before the
  // parameter is used.
  void local_changed() const;

 private:
  std::vector<Placement> placements(bool of_gradient) const;
  OptimSpan span() const;
  void copy_from(const float* whole) const;

  DataParallel* parallel_;
  const Parameter* parameter_;
  const Parameter* first_;                    // the parameter of the process's first mesh rank
  std::optional<DataParallel::Place> place_;  // nullopt: this rank has no part of the parameter
  bool is_sharded_ = false;  // the parameter is sharded over the axes "shard" and "context"
};

// All parameters of a model for which fully_shard() was called, in the order of
// Module::parameters(). Throws InternalError if there was no such call.
std::vector<ShardedParameter> sharded_parameters(const Module& model);

}  // namespace shale::comm
