#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "shale/comm/collective.h"

namespace shale::comm {

// Counts and offsets of an all-to-all's slices in a rank's input and output: elements, by rank.
struct SliceTable {
  std::vector<int64_t> in_counts;
  std::vector<int64_t> in_offsets;
  std::vector<int64_t> out_counts;
  std::vector<int64_t> out_offsets;
};
SliceTable slices_of(const CollectiveCall& call, int ranks);

// Bytes that this rank sends: ring_bytes(), or for an all_to_all_v the bytes for other ranks.
// received_bytes(): bytes that it receives in an all_to_all_v.
double sent_bytes(const CollectiveCall& call, int rank, int ranks);
double received_bytes(const CollectiveCall& all_to_all_v, int rank);

// Number of elements before slice `rank`.
int64_t offset_of(std::span<const int64_t> counts, int rank);

// Hash of a rank's pair counts. The sum over all ranks is 0 (modulo 2^64) if for every pair the
// sent count equals the expected count; otherwise it is 0 only with a probability of 2^-64.
uint64_t pair_balance(int rank, std::span<const int64_t> in_counts,
                      std::span<const int64_t> out_counts);

// Describes the first mismatched pair: "rank 1 to rank 3: 5 elements, rank 3 expects 4"; empty
// if there is none. ranks: tables by group rank; world_ranks: numbers shown in the message.
std::string pair_disagreement(std::span<const SliceTable> ranks, std::span<const int> world_ranks);

}  // namespace shale::comm
