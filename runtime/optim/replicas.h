#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "shale/runtime/tensor/tensor.h"

namespace shale {

// A vector of n elements that differs between replicas. They exchange its mean with one bit per
// element (kernels/one_bit.h).
struct OneBitVector {
  Tensor value;            // [n] f32: receives the mean, equal on all replicas
  Tensor grad = {};        // [n] f32 or bf16; undefined: no gradient
  Tensor mask;             // [n] f32, equal on all replicas; the mean is 0 where the mask is 0
  Tensor owed;             // [n] f32: error feedback, what this replica has not sent so far
  // [number of owned() elements] f32: error feedback of the means that this rank computes
  Tensor owner_owed;
  // Each replica contributes value_factor * value + grad_factor * clip * grad + owed to the mean.
  // clip is the factor of the step's gradient clipping.
  float value_factor = 1;
  float grad_factor = 0;
};

struct ElementRange {
  int64_t first = 0, count = 0;
};

// Communication with the ranks that hold copies of this rank's shards, one per replica of the
// model. Collective.
struct ShardReplicas {
  int rank = 0, size = 1;  // index of this rank among the replicas; number of replicas
  // Replaces vectors by their means over the replicas. Their lengths are equal on all replicas.
  // Calls kernels with `exec`, which must have the step's values.
  std::function<void(const Exec& exec, std::span<const OneBitVector> vectors)> mean;

  // Returns the ranges, one for each vector, of the elements whose mean this rank computes.
  // lengths: lengths of the vectors. The ranks divide the elements of all vectors equally, in whole
  // blocks.
  std::vector<ElementRange> owned(std::span<const int64_t> lengths) const;
};

}  // namespace shale
