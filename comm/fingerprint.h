#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shale/comm/collective.h"

namespace shale::comm {

// Whose end of a link a message is at, in the lists of what a process does.
enum class LinkRole : uint8_t { kNone, kSends, kReceives };

// What ranks compare before a collective. Plain data: it lies in shared memory and is sent. The
// lists of what a process does have messages of links among them, which are compared otherwise.
struct Fingerprint {
  uint64_t sequence = 0;  // collectives of the group before this one
  uint64_t tag_hash = 0;  // of the whole tag
  int64_t count = 0;      // CollectiveCall::count()
  uint64_t balance = 0;   // CollectiveCall::balance; not compared: those of all ranks add up to 0
  int64_t step = -1;      // CollectiveOptions::step
  int32_t root = 0;       // of a message: its sender, a rank of the World
  int32_t peer = 0;       // of a message: its receiver
  LinkRole role = LinkRole::kNone;  // of a message; kNone: it is a collective
  CollectiveOp op = CollectiveOp::kBarrier;
  DType dtype = DType::kF32;
  char tag[61] = {};  // its end, for people

  friend bool operator==(const Fingerprint& a, const Fingerprint& b) {
    return a.sequence == b.sequence && a.tag_hash == b.tag_hash && a.count == b.count &&
           a.step == b.step && a.root == b.root && a.op == b.op && a.dtype == b.dtype;
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
