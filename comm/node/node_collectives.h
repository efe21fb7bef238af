#pragma once

#include <cstdint>
#include <vector>

#include "shale/base/exec.h"
#include "shale/comm/collective.h"
#include "shale/comm/node/node_channel.h"
#include "shale/comm/node/node_exchange.h"

namespace shale::comm {

// Collectives among the ranks of one node, through shared memory. There are four algorithms,
// selected by what all ranks announced, so that all select the same:
//
//   at once  Little data: every rank writes it into its staging half together with its
//            announcement, syncs, and reads what it needs. One sync.
//   direct   Buffers that peers can map: nothing is copied. For an all-reduce, rank r owns slice r
//            of every buffer: it reads the slice from all buffers, adds, and writes the sum into
//            all of them. No other rank touches that slice, so the operation works in place.
//            Two syncs: one before (all data is ready), one after (all ranks have written).
//   staged   Other buffers, chunk by chunk through the staging halves. One sync per chunk; the
//            first chunk comes with the announcement. Reading one half overlaps with the peers'
//            writes to the other.
//   in parts Like staged, for sums over many ranks or much data: each rank adds only one part
//            of each chunk, in the staging areas of all ranks. Fewer copies and additions, but two
//            more steps.
class NodeCollectives {
 public:
  // memory: memory that peers can map; null if peers cannot map memory. group_ranks: group rank of
  // each rank of this node. ranks: size of the group, which may have more nodes.
  NodeCollectives(NodeChannel& channel, SharedMemory* memory, const Exec& exec,
                  const std::vector<int>& group_ranks, int ranks)
      : channel_(channel),
        memory_(memory),
        exec_(exec),
        exchange_(channel, memory, exec, group_ranks, ranks) {}

  void run(const CollectiveCall& call, uint64_t sequence, bool blocking);

  // Announces this rank's collective, syncs, and returns what all ranks of this node announced.
  std::vector<Fingerprint> announce(const CollectiveCall& call, uint64_t sequence, bool blocking);

  // Exchanges the slices of an announced all-to-all that stay inside this node.
  NodeExchange& exchange() { return exchange_; }

  // Elements per slice that fit into one staging half with `slices` slices.
  int64_t chunk_elements(DType dtype, int slices) const;

 private:
  struct Chunk {
    int64_t offset = 0;  // offset in elements
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
