#pragma once

#include "shale/runtime/optim/shard.h"

namespace shale::optim {

// Norms of vectors of which ranks have parts, such as parameters and their updates. Squares are
// added without an order (kernels/fixed_sum.h), so that a norm has the same bits however its vector
// is cut at multiples of kernels::kNormBlock. All is queued on the compute stream.
class WholeNorms {
 public:
  // peers: the ranks that have the other parts; null: there are none.
  WholeNorms(Context& context, const ShardPeers* peers, int64_t count);

  void forget(const Exec& exec);
  // Adds a part of vector `index`, f32 or bf16.
  void add(const Exec& exec, int64_t index, const View& part);
  // Of all that was added since forget(), on all ranks. Collective.
  void join(const Exec& exec);
  // [count] f32 of vectors [first, first + count), as join() has left them; not contiguous.
  View norms(int64_t first, int64_t count) const;

 private:
  const ShardPeers* peers_;
  int64_t count_;
  Tensor sums_;    // a FixedSum each, as bytes
  Tensor states_;  // a StepState each, as f32: where a norm is
};

}  // namespace shale::optim
