#pragma once

#include "shale/comm/process_group.h"
#include "shale/runtime/nn/exchange.h"

namespace shale::comm {

// An Exchange over the ranks of a group, in rank order.
class TensorExchange : public nn::Exchange {
 public:
  // leaves: a multiple of the ranks. The group outlives this.
  TensorExchange(ProcessGroup& group, int leaves)
      : Exchange(leaves, group.size(), group.rank()), group_(group) {}

  Tensor gather(const Tensor& slice) override;
  Tensor sum_slices(const std::vector<Tensor>& parts) override;
  void gather_leaves(const Tensor& all) override;

 private:
  ProcessGroup& group_;
};

}  // namespace shale::comm
