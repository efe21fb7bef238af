#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "shale/runtime/tensor/tensor.h"

namespace shale {

// A vector of n elements, different on each replica, whose mean is exchanged with one bit per
// element (kernels/one_bit.h).
struct OneBitVector {
  Tensor value;            // [n] f32: receives the mean, equal on all replicas
  Tensor grad = {};        // [n] f32 or bf16; undefined: none
  Tensor mask;             // [n] f32, equal on all replicas; where it is 0 the mean is 0
  Tensor owed;             // [n] f32: error feedback: what this replica did not send so far
  Tensor owner_owed;       // [count of ShardReplicas::owned()] f32: error feedback of its means
  // The mean is that of value_factor * value + grad_factor * (clip factor of the step * grad) +
  // owed.
  float value_factor = 1;
  float grad_factor = 0;
};

struct ElementRange {
  int64_t first = 0, count = 0;
};

// The ranks that hold copies of this rank's shards, one per replica of the model. Collective.
struct ShardReplicas {
  int rank = 0, size = 1;  // rank among the replicas, and their number
  // Computes the means over the replicas of vectors, whose lengths are equal on all replicas. Calls
  // kernels with `exec`, which must have the step's values.
  std::function<void(const Exec& exec, std::span<const OneBitVector> vectors)> mean;

  // Elements of vectors of these lengths whose mean this rank computes: an equal share of all the
  // vectors' elements, in whole blocks.
  std::vector<ElementRange> owned(std::span<const int64_t> lengths) const;
};

}  // namespace shale
