#pragma once

#include <cstdint>
#include <string>

#include "shale/runtime/nn/module.h"

namespace shale {

// How a state is distributed over the replicas of a model (the ranks that hold the same shards).
enum class OverReplicas : uint8_t {
  kSame,  // each replica has a copy
  kEach,  // each replica has different values for the same elements
  kCut,   // each replica has different elements
};

// Shape of a state with one value per `block` elements of a parameter. It has the parameter's rows
// if a row is a multiple of the block, so that parts of the parameter have parts of the state; else
// a vector.
Shape state_shape(const Shape& parameter, int64_t block);

// This rank's part of one tensor of the training state. Names and shapes are those of the whole
// tensor, and do not depend on the number of ranks, stage, compute dtype or memory location, so
// that a state saved with one layout can be loaded with any other. With tensor parallelism a part
// is one box of the whole, and a tensor may have several:
//   "wte.weight"      a parameter: its f32 master, or its values if it is frozen
//   "wte.weight/m"    an optimizer state
//   "rope.table"      a persistent buffer of a module
struct StatePart {
  std::string name;
  const Parameter* parameter = nullptr;  // parameter, also of an optimizer state; null: a buffer
  Shape shape;
  // Elements of a parameter's row for each value of the state (state_shape()).
  int64_t block = 1;
  TensorBox box = {};     // a box without dimensions stands for the whole tensor
  int64_t first = 0;      // the part is elements [first, first + count()) of the box, row-major
  Tensor values;          // a vector, in device or host memory; may be empty
  bool is_whole = false;  // every rank of the shard group has the whole tensor, with equal values
  bool of_whole = false;  // covers the whole parameter, equal on all tensor-parallel ranks
  bool is_copy = false;   // another tensor-parallel rank has the same part and writes it
  // kEach: the saved tensor has an additional first dimension over the replicas, added by
  // comm::training_state(). If the number of replicas differs, loading takes the mean.
  OverReplicas replicas = OverReplicas::kSame;

  int64_t count() const { return values.numel(); }
};

}  // namespace shale
