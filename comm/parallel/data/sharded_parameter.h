#pragma once

#include <string>
#include <vector>

#include "shale/comm/mesh.h"
#include "shale/comm/parallel/data/data_parallel.h"

namespace shale::comm {

// How the ranks of one axis of a mesh hold a tensor.
enum class Placement : uint8_t {
  kReplicate,  // each has all of what the other axes leave
  kShard,      // consecutive ranges of its elements in row-major order, by coordinate; unlike
               // PyTorch's Shard(0) they may end inside a row, differ in length, and be empty
};
std::string_view to_string(Placement placement);  // "replicate", "shard"

// Elements [begin, begin + count) of a tensor, in row-major order.
struct ElementRange {
  int64_t begin = 0;
  int64_t count = 0;
  friend bool operator==(const ElementRange&, const ElementRange&) = default;
};

// A parameter of a sharded model as this rank holds it between two steps: what PyTorch has a
// DTensor for. A handle: copies are cheap, and it is good for as long as the model, which it does
// not keep alive. Ops take Parameter::value, which is whole while its module runs.
class ShardedParameter {
 public:
  // Throws InternalError for a parameter that is not part of the model.
  ShardedParameter(DataParallel& parallel, const Parameter& parameter);

  const Parameter& parameter() const { return *parameter_; }
  std::string name() const { return parameter_->full_name(); }
  const Shape& shape() const { return parameter_->shape; }  // of the whole

  // Axes "replica" and "shard" (ShardGroups::replicate and shard, the first of one rank if there is
  // none), and how each holds this parameter. Stage 0 replicates over both.
  const MeshLayout& mesh() const { return mesh_; }
  const std::vector<Placement>& placements() const { return placements_; }

  ElementRange local_range() const;
  // This rank's elements as [count]: f32 masters, or the values of a frozen parameter. It is the
  // memory itself, in host memory if it is offloaded. Who writes to it calls local_changed() then.
  Tensor local_tensor() const;
  // Their gradient, as optimizers see it after finish_gradients(): [count], f32 or bf16. Undefined
  // if there is none.
  Tensor local_grad() const;

  // All elements, f32 on the device, on every rank. Collective over the axis "shard".
  Tensor full_tensor() const;
  // Sets this rank's elements from all of them: f32 in host memory, in the parameter's shape. Not
  // collective, but every rank must do it before the parameter is used. Throws ShapeError and
  // DTypeError.
  void distribute(const View& whole) const;
  // The whole parameter, in the compute dtype, follows what was written to local_tensor(). Every
  // rank must do it before the parameter is used.
  void local_changed() const;

 private:
  OptimSpan span() const;

  DataParallel* parallel_;
  const Parameter* parameter_;
  DataParallel::Place place_;
  MeshLayout mesh_;
  std::vector<Placement> placements_;
};

// All parameters of a model that fully_shard() was called for, in the order of
// Module::parameters(). Throws InternalError if it is not sharded.
std::vector<ShardedParameter> sharded_parameters(const Module& model);

}  // namespace shale::comm
