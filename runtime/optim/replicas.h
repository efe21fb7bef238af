#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "shale/runtime/tensor/tensor.h"

namespace shale {

// A vector of n elements of which every replica has one of its own, for a mean that travels at one
// bit an element (kernels/one_bit.h).
struct OneBitVector {
  Tensor value;            // [n] f32: receives the mean, the same on all
  Tensor grad = {};        // [n] f32 or bf16; undefined: there is none
  Tensor mask;             // [n] f32, alike on all; where it is 0 the mean is 0
  Tensor owed;             // [n] f32: what this replica has not said so far
  Tensor owner_owed;       // [count of ShardReplicas::owned()] f32: what its means left out
  float value_factor = 1;  // what is averaged: value_factor * value
  float grad_factor = 0;   // + grad_factor * (clip factor of the step * grad) + owed
};

struct ElementRange {
  int64_t first = 0, count = 0;
};

// The ranks that have copies of this rank's shards: one of each replica of the model. Collective.
struct ShardReplicas {
  int rank = 0, size = 1;  // of them
  // The mean over the replicas, of vectors of the same lengths on all of them. Kernels are called
  // with `exec`, which has the step's values.
  std::function<void(const Exec& exec, std::span<const OneBitVector> vectors)> mean;

  // Of vectors of these lengths, the elements whose mean this rank makes: equal shares of all of
  // them, in whole blocks.
  std::vector<ElementRange> owned(std::span<const int64_t> lengths) const;
};

}  // namespace shale
