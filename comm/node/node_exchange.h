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

// Results of this size or more bypass the caches, which are too small to keep them.
inline constexpr int64_t kStreamBytes = 4 << 20;

// All-to-alls among the ranks of one node. Every rank reads its slices from its peers' buffers if
// it can map them. Otherwise it reads them chunk by chunk from the peers' staging halves, in which
// each rank has an area of equal size.
//
// A staging half starts with a table of the counts that its rank sends to, and expects from, all
// ranks of the group. With it, peers find their slices and detect mismatched counts.
class NodeExchange {
 public:
  // group_ranks: group rank of each rank of this node. ranks: size of the whole group.
  NodeExchange(NodeChannel& channel, SharedMemory* memory, const Exec& exec,
               std::vector<int> group_ranks, int ranks);

  // Minimum size of a staging half, in bytes.
  static int64_t smallest_staging(int ranks) { return 128 * (int64_t{ranks} + 1); }

  // Writes this rank's table, and completes its announcement `mine`. The next sync shows both.
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
