#pragma once

#include <cstdint>
#include <string>

#include "shale/runtime/nn/module.h"

namespace shale {

// How the replicas of a model, the ranks that hold the same shards, have a state.
enum class OverReplicas : uint8_t {
  kSame,  // each has a copy
  kEach,  // each has one of its own, of the same elements
  kCut,   // each has other elements
};

// The shape of a state with a value for every `block` elements of a parameter: by rows, if a row is
// whole blocks, so that parts of the parameter have parts of the state; else a vector.
Shape state_shape(const Shape& parameter, int64_t block);

// What this rank holds of one tensor of the training state. Names and shapes are those of the whole
// tensor, the same for every number of ranks, stage, compute dtype and place in memory, so that a
// state that was saved on one layout can be loaded on any other. Of a model that is cut it is one
// box of the whole; a tensor may have several:
//   "wte.weight"      a parameter: its f32 master, or its values if it is frozen
//   "wte.weight/m"    a state of the optimizer
//   "rope.table"      a persistent buffer of a module
struct StatePart {
  std::string name;
  const Parameter* parameter = nullptr;  // that it is or belongs to; null for a buffer
  Shape shape;
  // Elements of a row of the parameter that a value is for (state_shape()).
  int64_t block = 1;
  TensorBox box = {};     // without dimensions: all of it
  int64_t first = 0;      // this part is its elements [first, first + count()), row by row
  Tensor values;          // a vector, in device or host memory; may be empty
  bool is_whole = false;  // every rank of the shard group has all of it, and the same
  bool of_whole = false;  // it is of the whole parameter, and every tensor rank has the same
  bool is_copy = false;   // another tensor rank has the same, and writes it
  // kEach: the tensor has those of all replicas in a dimension before the others, which
  // comm::training_state() adds; loading from other numbers of replicas takes their mean.
  OverReplicas replicas = OverReplicas::kSame;

  int64_t count() const { return values.numel(); }
};

}  // namespace shale
