#pragma once

#include <cstdint>
#include <vector>

#include "shale/base/exec.h"
#include "shale/comm/collective.h"
#include "shale/comm/node/node_channel.h"
#include "shale/comm/node/node_exchange.h"

namespace shale::comm {

// Collectives among ranks of one node, through shared memory. There are four ways, chosen by what
// all ranks announced, so that all choose alike:
//
//   at once  little data: every rank writes it into its staging half together with its
//            announcement, syncs, and takes what it needs. One sync.
//   direct   buffers that peers can map: nothing is copied. For an all-reduce rank r owns slice r
//            of everybody's buffer: it reads the slice from all of them, adds, and writes the sum
//            into all of them. Nobody else touches that slice, so that the operation is in place.
//            Two syncs: one before (everybody's data is there), one after (everybody has written).
//   staged   other buffers, chunk by chunk through the staging halves. One sync per chunk, and the
//            first comes with the announcement; reading one half overlaps with peers' writing the
//            other.
//   in parts staged, for sums over many ranks or much data: a rank adds one part of each chunk
//   only,
//            in the staging areas of all. Less to copy and to add, for two steps more in all.
class NodeCollectives {
 public:
  // memory: what peers can map; null if they cannot. group_ranks: of the ranks of this node, by
  // local index; ranks: of the group, which may have more of them.
  NodeCollectives(NodeChannel& channel, SharedMemory* memory, const Exec& exec,
                  const std::vector<int>& group_ranks, int ranks)
      : channel_(channel),
        memory_(memory),
        exec_(exec),
        exchange_(channel, memory, exec, group_ranks, ranks) {}

  void run(const CollectiveCall& call, uint64_t sequence, bool blocking);

  // Announces the call, syncs, and returns what the ranks of this node called, by rank.
  std::vector<Fingerprint> announce(const CollectiveCall& call, uint64_t sequence, bool blocking);

  // The part of an announced all-to-all that stays on this node.
  NodeExchange& exchange() { return exchange_; }

  // Elements of a slice that one staging half takes, of `slices` slices.
  int64_t chunk_elements(DType dtype, int slices) const;

  // From here on results are not read again before they have left the caches.
  static constexpr int64_t kStreamBytes = 4 << 20;

 private:
  struct Chunk {
    int64_t offset = 0;  // elements
    int64_t count = 0;
    int half = 0;
  };
  void run_all_to_all(const CollectiveCall& call, uint64_t sequence, bool blocking);
  int slices(const CollectiveCall& call) const;
  int64_t total(const CollectiveCall& call) const;
  Announcement& prepare(const CollectiveCall& call, uint64_t sequence, bool at_once);
  [[noreturn]] void report_disagreement(uint64_t sequence);
  bool reachable(const CollectiveCall& call, const Announcement& rank) const;
  bool all_reachable(const CollectiveCall& call, uint64_t sequence) const;
  std::vector<const void*> map_all(uint64_t sequence, bool outputs) const;

  void direct(const CollectiveCall& call, uint64_t sequence);
  void direct_all_reduce(const CollectiveCall& call, uint64_t sequence);
  void direct_reduce_scatter(const CollectiveCall& call, uint64_t sequence);
  void direct_all_gather(const CollectiveCall& call, uint64_t sequence);
  void direct_gather(const CollectiveCall& call, uint64_t sequence);
  void pull_slices(const CollectiveCall& call, const std::vector<const void*>& inputs);
  void direct_broadcast(const CollectiveCall& call, uint64_t sequence);

  void staged(const CollectiveCall& call, Chunk chunk, bool first_is_there, bool blocking);
  bool in_parts(const CollectiveCall& call, bool at_once) const;
  void staged_in_parts(const CollectiveCall& call, Chunk first, bool first_is_there, bool blocking);
  void give_parts(const CollectiveCall& call, const Chunk& chunk);
  void add_part(const CollectiveCall& call, const Chunk& chunk);
  void take_parts(const CollectiveCall& call, const Chunk& chunk);
  void fill(const CollectiveCall& call, const Chunk& chunk);
  void drain(const CollectiveCall& call, const Chunk& chunk);
  void drain_reduce(const CollectiveCall& call, const Chunk& chunk);
  void drain_all_gather(const CollectiveCall& call, const Chunk& chunk);

  NodeChannel& channel_;
  SharedMemory* memory_;
  Exec exec_;
  NodeExchange exchange_;
  Fingerprint current_;
};

}  // namespace shale::comm
