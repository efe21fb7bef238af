#pragma once

#include "shale/runtime/optim/shard.h"

namespace shale::optim {

// Norms of vectors that are sharded over ranks, such as parameters and their updates. Sums of
// squares do not depend on the order of addition (kernels/fixed_sum.h). So the bits of a norm are
// the same for every division of the vector at multiples of kernels::kNormBlock. All work is queued
// on the compute stream.
class WholeNorms {
 public:
  // peers: ranks that hold the other parts of the vectors; null: this rank has the whole vectors.
  WholeNorms(Context& context, const ShardPeers* peers, int64_t count);

  void forget(const Exec& exec);
  // Adds a part of vector `index`, f32 or bf16.
  void add(const Exec& exec, int64_t index, const View& part);
  // Computes the norms of everything added since forget(), over all ranks. Collective.
  void join(const Exec& exec);
  // Returns the norms of vectors [first, first + count) after join(): [count] f32, not contiguous.
  View norms(int64_t first, int64_t count) const;

 private:
  const ShardPeers* peers_;
  int64_t count_;
  Tensor sums_;    // one FixedSum per vector, as bytes
  Tensor states_;  // one StepState per vector, as f32 elements; it contains the norm
};

}  // namespace shale::optim
