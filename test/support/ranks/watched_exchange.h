#pragma once

#include <string>
#include <vector>

#include "shale/base/trace.h"
#include "shale/comm/parallel/tensor/group_exchange.h"

namespace shale::test {

// An exchange that knows how many calls of some kernels came while each of what it began was under
// way. The context's tracer is `tracer`.
struct WatchedExchange : comm::GroupExchange {
  // leaves: 0: as many as ranks.
  WatchedExchange(comm::ProcessGroup& group, std::vector<std::string> names, int leaves = 0)
      : GroupExchange(group, leaves > 0 ? leaves : group.size(), "watched"),
        kernels(std::move(names)) {}

  nn::Arrival begin_gather(const Tensor& slice) override {
    return watched(GroupExchange::begin_gather(slice), gathers);
  }
  nn::Arrival begin_gather_leaves(const Tensor& all) override {
    return watched(GroupExchange::begin_gather_leaves(all), gathers);
  }
  nn::Arrival begin_sum_slices(const std::vector<Tensor>& parts) override {
    return watched(GroupExchange::begin_sum_slices(parts), sums);
  }
  nn::Arrival begin_shift(const Tensor& x, const Tensor& into, int by, nn::ShiftOf of) override {
    nn::Arrival arrival = GroupExchange::begin_shift(x, into, by, of);
    return of == nn::ShiftOf::kRing ? arrival : watched(arrival, shifts);
  }
  nn::Arrival begin_pass(const Tensor& x) override {
    return watched(GroupExchange::begin_pass(x), passes);
  }

  nn::Arrival watched(nn::Arrival arrival, std::vector<int64_t>& calls_meanwhile) {
    return nn::Arrival([this, arrival, &calls_meanwhile, before = calls()]() mutable {
      calls_meanwhile.push_back(calls() - before);
      return arrival.get();
    });
  }
  int64_t calls() const {
    int64_t sum = 0;
    for (const auto& [name, total] : tracer.totals()) {
      for (const std::string& kernel : kernels) sum += name == kernel ? total.calls : 0;
    }
    return sum;
  }

  std::vector<std::string> kernels;
  Tracer tracer;
  std::vector<int64_t> gathers, sums, shifts, passes;  // in the order in which they were waited for
};

}  // namespace shale::test
