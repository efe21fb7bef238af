#pragma once

#include <cstdint>
#include <string>

#include "shale/runtime/nn/module.h"

namespace shale {

// Distribution of a state over the replicas of a model (ranks that hold the same shards).
enum class OverReplicas : uint8_t {
  kSame,  // each replica has a copy
  kEach,  // each replica has different values for the same elements
  kCut,   // each replica has different elements
};

// Returns the shape of a state that has one value per `block` elements of a parameter. If the
// parameter's row length is a multiple of the block, the state has the parameter's rows, so that
// each part of the parameter has a part of the state. Otherwise it is a vector.
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
  // the parameter, or the parameter of an optimizer state; null: a buffer
  const Parameter* parameter = nullptr;
  Shape shape;
  // Number of parameter elements per value of the state (see state_shape()).
  int64_t block = 1;
  TensorBox box = {};     // region of the whole tensor; without dimensions: the whole tensor
  int64_t first = 0;      // the part is elements [first, first + count()) of the box, row-major
  Tensor values;          // a vector, in device or host memory; may be empty
  // true: every rank of the shard group has the whole tensor, with equal values
  bool is_whole = false;
  // true: the state covers the whole parameter and is equal on all tensor-parallel ranks
  bool of_whole = false;
  bool is_copy = false;  // true: another tensor-parallel rank has the same part and writes it
  // Distribution over the replicas. With kEach, comm::training_state() adds a first dimension, the
  // replicas, to the saved tensor. Loading with another number of replicas takes the mean.
  OverReplicas replicas = OverReplicas::kSame;

  int64_t count() const { return values.numel(); }
};

}  // namespace shale
