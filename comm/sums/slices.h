#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "shale/comm/collective.h"

namespace shale::comm {

// Number of elements, and offset, of the slice for each rank in an all-to-all's input, and of the
// slice from each rank in its output.
struct SliceTable {
  std::vector<int64_t> in_counts;
  std::vector<int64_t> in_offsets;
  std::vector<int64_t> out_counts;
  std::vector<int64_t> out_offsets;
};
SliceTable slices_of(const CollectiveCall& call, int ranks);

// sent_bytes(): bytes that this rank sends, which are ring_bytes() except for an all_to_all_v.
// received_bytes(): bytes that it receives in an all_to_all_v.
double sent_bytes(const CollectiveCall& call, int rank, int ranks);
double received_bytes(const CollectiveCall& all_to_all_v, int rank);

// Number of elements before slice `rank`.
int64_t offset_of(std::span<const int64_t> counts, int rank);

// Hash of a rank's counts, to be added over all ranks modulo 2^64. The sum is 0 if for every pair
// of ranks the sent count equals the expected count. Otherwise it is 0 with a probability of 2^-64.
uint64_t pair_balance(int rank, std::span<const int64_t> in_counts,
                      std::span<const int64_t> out_counts);

// Describes the first pair of ranks with different counts: "rank 1 to rank 3: 5 elements, rank 3
// expects 4". Empty if there is none. ranks: table of each group rank. world_ranks: its number in
// the message.
std::string pair_disagreement(std::span<const SliceTable> ranks, std::span<const int> world_ranks);

}  // namespace shale::comm
