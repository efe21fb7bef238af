#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "shale/comm/collective.h"

namespace shale::comm {

// Where the slices of an all-to-all lie in what a rank gives and in what it receives: elements, by
// rank of the group.
struct SliceTable {
  std::vector<int64_t> in_counts;
  std::vector<int64_t> in_offsets;
  std::vector<int64_t> out_counts;
  std::vector<int64_t> out_offsets;
};
SliceTable slices_of(const CollectiveCall& call, int ranks);

// Bytes that this rank sends: ring_bytes(), but of an all_to_all_v what it gives to others. Bytes
// that it receives of that.
double sent_bytes(const CollectiveCall& call, int rank, int ranks);
double received_bytes(const CollectiveCall& all_to_all_v, int rank);

// Elements before slice `rank`.
int64_t offset_of(std::span<const int64_t> counts, int rank);

// What a rank says about the counts of its pairs, as one number: over all ranks these add up to 0
// (modulo 2^64) if what each gives is what the other expects, and to something else, but for one
// case in 2^64, if any pair disagrees.
uint64_t pair_balance(int rank, std::span<const int64_t> in_counts,
                      std::span<const int64_t> out_counts);

// The first pair that disagrees: "rank 1 gives rank 3 5 elements, rank 3 expects 4"; empty if none
// does. By rank of the group; world_ranks are for people.
std::string pair_disagreement(std::span<const SliceTable> ranks, std::span<const int> world_ranks);

}  // namespace shale::comm
