#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "shale/base/exec.h"
#include "shale/comm/combine.h"
#include "shale/comm/mpi_internal.h"
#include "shale/comm/node/node_channel.h"
#include "shale/comm/node/node_collectives.h"
#include "shale/comm/topology.h"

namespace shale::comm {

// Collectives over several nodes: shared memory inside a node, MPI between nodes.
//
// Chunk by chunk every rank copies what it gives into its staging area; then lane l (the ranks with
// local index l of all nodes) handles part l of the chunk: it reduces over its node, exchanges with
// the other nodes, and leaves the result in staging areas of its node, from where every rank takes
// it. All ranks of a node work at the same time, each with 1/lanes of the bytes. A lane exchanges
// sums as a reduce-scatter (part j goes to node j, which adds) and an all-gather: the fewest bytes.
//
// Order of additions: a tree over the ranks of a node in rank order, then a tree over the nodes'
// sums in node order; for bf16 and f16 these sums travel as f32.
//
// After a failure, requests may be in flight: this object and the channel must then outlive MPI.
class InterNode {
 public:
  InterNode(const Topology& topology, MpiComm lane, NodeChannel& channel, NodeCollectives& node,
            const Exec& exec)
      : topology_(topology), lane_(std::move(lane)), channel_(channel), node_(node), exec_(exec) {}

  void run(const CollectiveCall& call, uint64_t sequence, bool blocking);
  bool requests_pending() const { return !requests_.empty(); }

 private:
  struct Chunk {
    int64_t offset = 0;  // elements of a slice
    int64_t count = 0;
    int half = 0;
    Range part = {};  // of this rank's lane
  };
  struct Transfer {
    int node = 0;
    void* data = nullptr;
    int64_t bytes = 0;
  };
  bool in_lane() const { return topology_.local < topology_.lanes(); }
  void agree(const std::vector<Fingerprint>& calls);

  void fill(const CollectiveCall& call, const Chunk& chunk);
  void exchange_all_reduce(const CollectiveCall& call, const Chunk& chunk);
  void exchange_reduce_scatter(const CollectiveCall& call, const Chunk& chunk);
  void exchange_all_gather(const CollectiveCall& call, const Chunk& chunk);
  void exchange_broadcast(const CollectiveCall& call, const Chunk& chunk);
  void drain(const CollectiveCall& call, const Chunk& chunk);
  void drain_lanes(const Chunk& chunk, int64_t slice, void* to, DType dtype);

  std::byte* staged(int local, const Chunk& chunk, int64_t element, DType dtype) const;
  void combine_staged(const CollectiveCall& call, const Chunk& chunk, int64_t element,
                      int64_t count, void* output);
  void combine_nodes(const CollectiveCall& call, std::span<const void* const> inputs, int64_t count,
                     void* output);

  // Sends and receives, to and from each node once. Throws CommError after the time-out.
  void exchange(const std::vector<Transfer>& sends, const std::vector<Transfer>& receives);

  const Topology& topology_;
  MpiComm lane_;  // null if this rank is in no lane
  NodeChannel& channel_;
  NodeCollectives& node_;
  Exec exec_;
  Fingerprint current_;
  std::vector<std::byte> send_buffer_;
  std::vector<std::byte> receive_buffer_;
  std::vector<MPI_Request> requests_;
};

}  // namespace shale::comm
