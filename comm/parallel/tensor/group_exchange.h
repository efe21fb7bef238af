#pragma once

#include <memory>
#include <string>
#include <utility>

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
        leaves_tag_(name + " leaves"),
        counts_tag_(name + " counts"),
        heads_tag_(name + " heads"),
        ring_tag_(name + " ring") {}
  // The same of a group that goes with this.
  GroupExchange(std::unique_ptr<ProcessGroup> group, int leaves, const std::string& name)
      : GroupExchange(*group, leaves, name) {
    own_group_ = std::move(group);
  }

  Tensor gather(const Tensor& slice) override;
  Tensor sum_slices(const std::vector<Tensor>& parts) override;
  void gather_leaves(const Tensor& all) override;
  void add_counts(const Tensor& counts) override;
  Tensor all_to_all(const Tensor& slices) override;
  nn::Arrival begin_gather(const Tensor& slice) override;
  nn::Arrival begin_sum_slices(const std::vector<Tensor>& parts) override;
  nn::Arrival begin_gather_leaves(const Tensor& all) override;
  nn::Arrival begin_shift(const Tensor& x, const Tensor& into, int by, nn::ShiftOf of) override;
  nn::Arrival begin_pass(const Tensor& x) override;

  // Whether what begins is under way while the caller goes on, or done when the call returns.
  void set_overlap(bool overlap) { overlap_ = overlap; }

 private:
  std::vector<Work> gather_into(const Tensor& slice, const Tensor& all, bool async);
  std::vector<Work> scatter_into(const Tensor& mine, const Tensor& slice, bool async);
  Work leaves_into(const Tensor& all, bool async);
  nn::Arrival sum_of(const std::vector<Tensor>& parts, bool async);
  CollectiveOptions options_of(const Tensor& x, std::string_view tag, bool async) const;

  std::unique_ptr<ProcessGroup> own_group_;  // or null
  ProcessGroup& group_;
  bool overlap_ = true;
  const std::string gather_tag_, sum_tag_, leaves_tag_, counts_tag_, heads_tag_, ring_tag_;
};

}  // namespace shale::comm
