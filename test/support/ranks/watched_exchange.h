#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "shale/base/trace.h"
#include "shale/test/support/ranks/mesh_line.h"

namespace shale::test {

// An exchange that counts calls of some kernels during each transfer, from its begin to the wait
// for it. The context's tracer must be `tracer`.
struct WatchedExchange : comm::HostedExchange {
  WatchedExchange(std::shared_ptr<comm::MeshLine> line, int member, std::vector<std::string> names)
      : HostedExchange(std::move(line), member), kernels(std::move(names)) {}

  comm::Arrival begin_gather(const Tensor& slice) override {
    return watched(HostedExchange::begin_gather(slice), gathers);
  }
  comm::Arrival begin_gather_parts(const Tensor& all) override {
    return watched(HostedExchange::begin_gather_parts(all), gathers);
  }
  comm::Arrival begin_sum_slices(const Tensor& part) override {
    return watched(HostedExchange::begin_sum_slices(part), sums);
  }
  comm::Arrival begin_shift(const Tensor& x, const Tensor& into, int by,
                            comm::ShiftOf of) override {
    comm::Arrival arrival = HostedExchange::begin_shift(x, into, by, of);
    return of == comm::ShiftOf::kRing ? arrival : watched(arrival, shifts);
  }
  comm::Arrival begin_pass(const Tensor& x) override {
    return watched(HostedExchange::begin_pass(x), passes);
  }

  comm::Arrival watched(comm::Arrival arrival, std::vector<int64_t>& calls_meanwhile) {
    return comm::Arrival([this, arrival, &calls_meanwhile, before = calls()]() mutable {
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
  // Numbers of kernel calls during each transfer, in the order of the waits.
  std::vector<int64_t> gathers, sums, shifts, passes;
};

}  // namespace shale::test
