#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "shale/base/exec.h"
#include "shale/comm/collective.h"
#include "shale/comm/node/node_channel.h"
#include "shale/comm/sums/slices.h"

namespace shale::comm {

// All-to-alls among the ranks of one node: every rank reads its slices from its peers' buffers if
// it can map them, else chunk by chunk through their staging halves, in which each peer has an area
// of equal size.
//
// A staging half starts with a table of the counts that its rank sends and expects, for all ranks
// of the group, so that peers find their slices and mismatched pairs are detected.
class NodeExchange {
 public:
  // group_ranks: by local index; ranks: size of the whole group.
  NodeExchange(NodeChannel& channel, SharedMemory* memory, const Exec& exec,
               std::vector<int> group_ranks, int ranks);

  // Minimum size of a staging half, in bytes.
  static int64_t smallest_staging(int ranks) { return 128 * (int64_t{ranks} + 1); }

  // Writes the table, and completes the announcement `mine`; the next sync makes both visible.
  void begin(const CollectiveCall& call, Announcement& mine);
  // Counts of the rank with this local index: valid from the sync after begin() until finish().
  SliceTable table_of(int local) const;
  // Copies the slices between the ranks of the node. Sent and expected counts must match.
  void finish(const CollectiveCall& call, uint64_t sequence, const Fingerprint& print,
              bool blocking);

 private:
  std::span<int64_t> table(int local) const;
  int64_t longest(int local) const { return table(local)[0]; }
  std::byte* place(int from, int to, int half) const;
  int64_t place_elements(DType dtype) const;
  void fill(const CollectiveCall& call, int64_t first, int half);
  void drain(const CollectiveCall& call, int64_t first, int half);
  void direct(const CollectiveCall& call, uint64_t sequence);

  NodeChannel& channel_;
  SharedMemory* memory_;
  Exec exec_;
  std::vector<int> group_ranks_;
  int ranks_;
  SliceTable slices_;  // table of the call between begin() and finish()
  int first_half_ = 0;
};

}  // namespace shale::comm
