#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shale/comm/collective.h"

namespace shale::comm {

// End of a link to which a logged message belongs: sender or receiver.
enum class LinkRole : uint8_t { kNone, kSends, kReceives };

// Description of a collective. Ranks compare it before they run the collective. It is plain data,
// because it lies in shared memory and is sent. Lists of recent calls also use it for messages of
// links, which are compared in another way (Message).
struct Fingerprint {
  uint64_t sequence = 0;  // number of earlier collectives of the group
  uint64_t tag_hash = 0;  // hash of the whole tag
  int64_t count = 0;      // CollectiveCall::count()
  uint64_t balance = 0;   // CollectiveCall::balance; not compared: the sum over all ranks is 0
  int64_t step = -1;      // CollectiveOptions::step
  int32_t root = 0;       // of a collective: its root; of a message: World rank of the sender
  int32_t peer = 0;       // of a message: World rank of the receiver
  LinkRole role = LinkRole::kNone;  // kNone: a collective, not a message
  CollectiveOp op = CollectiveOp::kBarrier;
  DType dtype = DType::kF32;
  char tag[61] = {};  // end of the tag, for display

  friend bool operator==(const Fingerprint& a, const Fingerprint& b) {
    return a.sequence == b.sequence && a.tag_hash == b.tag_hash && a.count == b.count &&
           a.step == b.step && a.root == b.root && a.op == b.op && a.dtype == b.dtype;
  }
};

Fingerprint fingerprint(const CollectiveCall& call, uint64_t sequence);

// "all_reduce_sum 12 of fp32[768] for 'blocks.3 gradient'"
std::string describe(const Fingerprint& fingerprint);

// Formats world ranks as "ranks 0-2,5".
std::string rank_list(std::vector<int> ranks);

// Hash of all fields that ranks compare.
uint64_t hash_of(const Fingerprint& fingerprint);

// Returns "" if all ranks called the same collective. Otherwise describes the collectives that
// differ, with their ranks. ranks[i] called calls[i].
std::string disagreement(const std::vector<Fingerprint>& calls, const std::vector<int>& ranks);

}  // namespace shale::comm
