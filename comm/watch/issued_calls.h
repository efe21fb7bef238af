#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "shale/comm/fingerprint.h"

namespace shale::comm {

// Progress of a rank's collectives on its device, in a group. Plain data: it is sent.
struct Progress {
  uint64_t issued = 0;    // number of issued collectives
  uint64_t finished = 0;  // number of collectives that the device finished
  uint64_t history = 0;   // hash of the issued fingerprints
  uint64_t balance = 0;   // sum of the issued fingerprints' balances
  uint64_t leaving = 0;   // not 0: the rank has left the group
};

// Recently issued collectives of a rank. Keeps more calls than one step makes, because ranks may be
// a step apart when they are compared.
class IssuedCalls {
 public:
  static constexpr size_t kKept = 4096;

  // Records the call and counts it in `mine`.
  void add(const Fingerprint& call, Progress& mine);

  // Describes ranks that have issued other calls than this one. Empty if there are none, as far as
  // known. Looks at each rank once, however many calls there are. world_ranks: numbers of the ranks
  // in messages.
  std::string disagreement(std::span<const Progress> ranks, std::span<const int> world_ranks) const;

 private:
  struct Step {
    uint64_t number = 0;
    uint64_t history = 0;
    Fingerprint call;
  };
  const Step* find(uint64_t number) const;  // null if the call is too old, or not issued yet

  std::deque<Step> recent_;  // calls with consecutive numbers
};

}  // namespace shale::comm
