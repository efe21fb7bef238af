#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "shale/comm/fingerprint.h"

namespace shale::comm {

// What a rank has given its device to do in a group. Plain data: it is sent.
struct Progress {
  uint64_t issued = 0;    // collectives
  uint64_t finished = 0;  // by the device
  uint64_t history = 0;   // hash over the fingerprints of those issued
  uint64_t balance = 0;   // sum over those issued, see Fingerprint
  uint64_t leaving = 0;   // not 0: this rank is done with the group
};

// The collectives that a rank has issued, as far back as ranks may be apart when they are compared:
// more than a step has.
class IssuedCalls {
 public:
  static constexpr size_t kKept = 4096;

  // Counts the call in `mine`.
  void add(const Fingerprint& call, Progress& mine);

  // Why ranks that have come so far have not issued what this one has; empty: they have, as far as
  // one can tell. Looks at each rank once, however many calls there are. world_ranks: for messages.
  std::string disagreement(std::span<const Progress> ranks, std::span<const int> world_ranks) const;

 private:
  struct Step {
    uint64_t number = 0;
    uint64_t history = 0;
    Fingerprint call;
  };
  const Step* find(uint64_t number) const;  // null: no longer, or not yet

  std::deque<Step> recent_;  // numbered without gaps
};

}  // namespace shale::comm
