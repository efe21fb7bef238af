#pragma once

#include <cstdint>
#include <vector>

#include "shale/runtime/tensor/tensor.h"

namespace shale::comm {

// Where the experts of mixtures are, of which each rank of a group has equally many, in order. Rows
// of tokens go to the ranks of their experts, and results come back (arXiv:2006.16668,
// section 3.3). These calls are not recorded; dispatch() and collect() below are. Collective, in
// one order.
class ExpertExchange {
 public:
  virtual ~ExpertExchange() = default;
  int ranks() const { return ranks_; }
  int rank() const { return rank_; }

  // All ranks' counts, one after another; equally many each. Blocking.
  virtual std::vector<int32_t> gather(const std::vector<int32_t>& mine) = 0;
  // Rows [R, C] for each rank, one after another, and from each rank.
  virtual void all_to_all(const Tensor& in, const std::vector<int64_t>& to, const Tensor& out,
                          const std::vector<int64_t>& from) = 0;

 protected:
  ExpertExchange(int ranks, int rank) : ranks_(ranks), rank_(rank) {}

 private:
  int ranks_, rank_;
};

// What an exchange of rows moves, of a routing.
struct ExpertRows {
  std::vector<int64_t> to, from;  // rows for each rank, and from each
  int64_t rows = 0;               // of the routing, those of nobody too
  Tensor offsets;  // [E / ranks + 1] i32: where the rows of this rank's experts begin
  Tensor places;   // [R', 1] i32: of a row as it arrives, among those sorted by expert
  Tensor sources;  // [R'] i32: the reverse
};

// offsets: Routing::offsets [E + 1], of `rows` rows; what divides them divides those of the result.
// Waits for the device, whose counts are those of the host's sends. Collective.
ExpertRows expert_rows(ExpertExchange& exchange, const Tensor& offsets, int64_t rows);

// From rows sorted by expert, as moe_permute() has them, to those of all ranks' tokens for this
// rank's experts, sorted by (expert, rank): [R, C] to [R', C]. Keeps nothing.
Tensor dispatch(ExpertExchange& exchange, const ExpertRows& plan, const Tensor& rows);
// The reverse: [R', C] to [R, C], where rows of nobody have no meaning.
Tensor collect(ExpertExchange& exchange, const ExpertRows& plan, const Tensor& rows);

}  // namespace shale::comm
