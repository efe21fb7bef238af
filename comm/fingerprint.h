#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shale/comm/collective.h"

namespace shale::comm {

// What ranks compare before a collective. Plain data: it lies in shared memory and is sent.
struct Fingerprint {
  uint64_t sequence = 0;  // collectives of the group before this one
  uint64_t tag_hash = 0;  // of the whole tag
  int64_t count = 0;      // CollectiveCall::count()
  uint64_t balance = 0;   // CollectiveCall::balance; not compared: those of all ranks add up to 0
  int32_t root = 0;
  CollectiveOp op = CollectiveOp::kBarrier;
  DType dtype = DType::kF32;
  char tag[58] = {};  // its end, for people

  friend bool operator==(const Fingerprint& a, const Fingerprint& b) {
    return a.sequence == b.sequence && a.tag_hash == b.tag_hash && a.count == b.count &&
           a.root == b.root && a.op == b.op && a.dtype == b.dtype;
  }
};

Fingerprint fingerprint(const CollectiveCall& call, uint64_t sequence);

// "all_reduce_sum 12 of fp32[768] for 'blocks.3 gradient'"
std::string describe(const Fingerprint& fingerprint);

// "ranks 0-2,5": world ranks, for people.
std::string rank_list(std::vector<int> ranks);

// What ranks compare in one number.
uint64_t hash_of(const Fingerprint& fingerprint);

// Empty if all agree; else who called what. ranks[i] called calls[i].
std::string disagreement(const std::vector<Fingerprint>& calls, const std::vector<int>& ranks);

}  // namespace shale::comm
