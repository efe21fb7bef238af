#pragma once

#include <cstdint>
#include <vector>

#include "shale/runtime/tensor/tensor.h"

namespace shale::comm {

// Communication for distributed MoE experts. Each rank of a group has the same number of experts,
// in order. Rows of tokens go to the ranks of their experts, and results come back
// (arXiv:2006.16668, section 3.3). Autograd does not record these calls; it records dispatch() and
// collect(). All ranks must make the same calls in the same order.
class ExpertExchange {
 public:
  virtual ~ExpertExchange() = default;
  int ranks() const { return ranks_; }
  int rank() const { return rank_; }

  // Gathers the counts of all ranks, in rank order. All ranks pass equally many. Blocking.
  virtual std::vector<int32_t> gather(const std::vector<int32_t>& mine) = 0;
  // Sends the first to[0] rows [R, C] of `in` to rank 0, the next to[1] rows to rank 1, and so on.
  // Stores from[r] rows of each rank r in `out`, in rank order.
  virtual void all_to_all(const Tensor& in, const std::vector<int64_t>& to, const Tensor& out,
                          const std::vector<int64_t>& from) = 0;

 protected:
  ExpertExchange(int ranks, int rank) : ranks_(ranks), rank_(rank) {}

 private:
  int ranks_, rank_;
};

// Plan of the row transfers for one routing of tokens.
struct ExpertRows {
  std::vector<int64_t> to, from;  // numbers of rows to each rank and from each rank
  int64_t rows = 0;               // number of rows of the routing, padding rows included
  Tensor offsets;                 // [E / ranks + 1] i32: first row of each of this rank's experts
  Tensor places;   // [R', 1] i32: position of an arriving row among the rows sorted by expert
  Tensor sources;  // [R'] i32: inverse of places
};

// Plans the transfers of `rows` rows. offsets: Routing::offsets, [E + 1]. A divisor of all offsets
// also divides the offsets of the result. Waits for the device, because the host needs the counts.
// Collective.
ExpertRows expert_rows(ExpertExchange& exchange, const Tensor& offsets, int64_t rows);

// Sends rows that are sorted by expert, as moe_permute() returns them, to the ranks of the experts.
// Returns the rows of all ranks' tokens for this rank's experts, sorted by expert, then by rank:
// [R, C] to [R', C]. Keeps nothing for backward.
Tensor dispatch(ExpertExchange& exchange, const ExpertRows& plan, const Tensor& rows);
// Inverse of dispatch(): [R', C] to [R, C]. Padding rows have undefined values.
Tensor collect(ExpertExchange& exchange, const ExpertRows& plan, const Tensor& rows);

}  // namespace shale::comm
