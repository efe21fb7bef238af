#pragma once

#include <optional>
#include <string>
#include <vector>

#include "shale/comm/parallel/data/data_parallel.h"

namespace shale::comm {

// How the mesh ranks of one axis hold a tensor.
struct Placement {
  enum class Kind : uint8_t {
    kReplicate,  // each has all of what the other axes leave
    kShard,    // each has an equal part along `dim`, in rank order; of `groups` equal blocks along
               // `dim`, such as 3 of fused q, k and v, a part of each
    kRange,    // each process has a range of the elements that the other axes leave, in row-major
               // order: unlike those of PyTorch's Shard(0) ranges may end inside a row, differ in
               // length, and be empty
    kPartial,  // each has a summand, and the tensor is their sum
    kSome,     // some ranks have all of it, the others nothing
  };
  std::string axis = {};  // "replica", "pipeline", "shard", "context", "expert" or "tensor"
  int ranks = 1;          // mesh ranks along it
  Kind kind = Kind::kReplicate;
  int dim = 0;         // of kShard
  int64_t groups = 1;  // of kShard
  friend bool operator==(const Placement&, const Placement&) = default;
};
std::string to_string(const Placement& placement);  // "tensor 2: shard(0)"

// Elements [begin, begin + count) of a tensor, in row-major order.
struct ElementRange {
  int64_t begin = 0;
  int64_t count = 0;
  friend bool operator==(const ElementRange&, const ElementRange&) = default;
};

// A parameter of a sharded model as a mesh rank holds it between two steps: what PyTorch has a
// DTensor for. A handle: copies are cheap, and it is good for as long as the model, which it does
// not keep alive. Ops take Parameter::value, which has no ranges while its module runs.
class ShardedParameter {
 public:
  // parameter: of the model of any mesh rank of this process, also of another stage of a pipeline.
  // Throws InternalError for a parameter that is not part of the model.
  ShardedParameter(DataParallel& parallel, const Parameter& parameter);

  const Parameter& parameter() const { return *parameter_; }
  std::string name() const { return parameter_->full_name(); }
  // Shape of the whole, which no axis has cut, as of full(). A mesh rank's part along the axes
  // "tensor" and "expert" has parameter().shape.
  const Shape& shape() const { return parameter_->whole; }

  // One for each axis of more than one mesh rank, slowest first. A parameter of experts that ranks
  // have different ones of has the axis "expert" in place of "context" and "tensor"; its axis
  // "shard" has the ranks with the same experts.
  std::vector<Placement> placements() const { return placements(/*of_gradient=*/false); }
  // Placements of the gradient that backward leaves to be reduced (Parameter::value). After
  // finish_gradients() local_grad() is placed like the parameter.
  std::vector<Placement> gradient_placements() const { return placements(/*of_gradient=*/true); }

  // Range of local() among the elements of parameter().shape.
  ElementRange local_range() const;
  // This mesh rank's elements as [count]: f32 masters, or the values of a frozen parameter. It is
  // the memory itself, in host memory if it is offloaded, and that of all context ranks of the
  // process. Who writes to it calls local_changed() then. Undefined where the rank has nothing.
  Tensor local() const;
  // Their gradient, as optimizers see it after finish_gradients(): [count], f32 or bf16. Undefined
  // if there is none.
  Tensor local_grad() const;

  // All elements in shape(), f32 on the device, on every rank. Collective over all ranks that have
  // parts of the model, outside of HostedRanks::run().
  Tensor full() const;
  // Sets the elements of all mesh ranks of this process from `whole`: f32 in host memory, in
  // shape(). Not collective, but every rank must do it before the parameter is used. Throws
  // ShapeError and DTypeError.
  void distribute(const View& whole) const;
  // The whole parameter, in the compute dtype, follows what was written to local(). Every rank must
  // do it before the parameter is used.
  void local_changed() const;

 private:
  std::vector<Placement> placements(bool of_gradient) const;
  OptimSpan span() const;
  void copy_from(const float* whole) const;

  DataParallel* parallel_;
  const Parameter* parameter_;
  const Parameter* first_;                    // that of the process's first mesh rank
  std::optional<DataParallel::Place> place_;  // none: this rank has nothing of it
  bool is_sharded_ = false;                   // over the axes "shard" and "context"
};

// All parameters of a model that fully_shard() was called for, in the order of
// Module::parameters(). Throws InternalError if it is not sharded.
std::vector<ShardedParameter> sharded_parameters(const Module& model);

}  // namespace shale::comm
