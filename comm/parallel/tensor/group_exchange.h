#pragma once

#include <string>

#include "shale/comm/process_group.h"
#include "shale/runtime/nn/exchange.h"

namespace shale::comm {

// An Exchange over the ranks of a group, in rank order.
class GroupExchange : public nn::Exchange {
 public:
  // leaves: a multiple of the ranks; name: for reports, "tensor". The group outlives this.
  GroupExchange(ProcessGroup& group, int leaves, const std::string& name)
      : Exchange(leaves, group.size(), group.rank()),
        group_(group),
        gather_tag_(name + " gather"),
        sum_tag_(name + " sum"),
        leaves_tag_(name + " leaves") {}

  Tensor gather(const Tensor& slice) override;
  Tensor sum_slices(const std::vector<Tensor>& parts) override;
  void gather_leaves(const Tensor& all) override;

 private:
  ProcessGroup& group_;
  const std::string gather_tag_, sum_tag_, leaves_tag_;
};

}  // namespace shale::comm
