#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "shale/base/exec.h"
#include "shale/comm/hosts/topology.h"
#include "shale/comm/mpi_internal.h"
#include "shale/comm/node/node_channel.h"
#include "shale/comm/node/node_collectives.h"
#include "shale/comm/sums/combine.h"

namespace shale::comm {

// Collectives over several nodes: shared memory inside a node, MPI between nodes.
//
// Works chunk by chunk. Every rank copies its input into its staging area. Then rail l (the ranks
// with local index l of all nodes) handles part l of the chunk: it reduces over its node, exchanges
// with the other nodes, and leaves the result in staging areas of its node, from which every rank
// reads it. All ranks of a node work at the same time, each on 1/rails of the bytes. Rails exchange
// sums by a reduce-scatter and an all-gather, which send the fewest bytes, or by a tree for little
// data. They gather short slices in log2(nodes) rounds.
//
// Chunks are long enough for messages of 64 KiB, whatever the number of nodes. Before a collective,
// nodes compare 16 bytes, in log2(nodes) rounds.
//
// Order of additions: a tree over the ranks of a node in rank order, then a tree over the nodes'
// sums in node order; for bf16 and f16 these sums are sent as f32.
//
// After a failure, requests may be in flight: this object and the channel must then outlive MPI.
class InterNode {
 public:
  // rail: null if this rank is on none. all: the group's communicator, which must outlive this
  // object.
  InterNode(const Topology& topology, MpiComm rail, MPI_Comm all, NodeChannel& channel,
            NodeCollectives& node, const Exec& exec)
      : topology_(topology),
        rail_(std::move(rail)),
        all_(all),
        channel_(channel),
        node_(node),
        exec_(exec) {
    for (const auto& ranks : topology.ranks_of) {
      by_node_.insert(by_node_.end(), ranks.begin(), ranks.end());
    }
  }

  void run(const CollectiveCall& call, uint64_t sequence, bool blocking);
  bool requests_pending() const { return !requests_.empty(); }
  // Bytes of input and sums that the last run() has sent to other nodes.
  int64_t sent_bytes() const { return sent_bytes_; }

 private:
  // Target size of messages between nodes. Below it, latency matters more than bandwidth.
  static constexpr int64_t kMessageBytes = 64 << 10;
  struct Transfer {
    int node = 0;
    void* data = nullptr;
    int64_t bytes = 0;
    int rank = -1;  // group rank of the peer; -1: the rank of this rail on `node`
  };
  // What nodes compare before a collective.
  struct Verdict {
    static constexpr uint64_t kDisagree = 0;
    uint64_t call = kDisagree;  // hash of the call, made odd, if all agree
    uint64_t balance = 0;       // sum of Fingerprint::balance over the ranks
    void merge(const Verdict& other) {
      if (call != other.call) call = kDisagree;
      balance += other.balance;
    }
  };
  bool on_rail() const { return topology_.local < topology_.rails(); }
  void agree(const std::vector<Fingerprint>& calls);
  Verdict merged(Verdict mine);
  std::vector<std::vector<std::byte>> tell_all(std::span<const std::byte> mine,
                                               const std::vector<int64_t>& sizes);
  [[noreturn]] void report_disagreement(const std::vector<Fingerprint>& calls);
  [[noreturn]] void report_pairs();
  void run_all_to_all(const CollectiveCall& call, uint64_t sequence, bool blocking);
  void exchange_with_other_nodes(const CollectiveCall& call);

  void reduce_scatter(const CollectiveCall& call, bool blocking);
  void collect_sums(const CollectiveCall& call, int64_t first, int64_t count, bool blocking);
  void exchange_sums(const CollectiveCall& call, int64_t count, int half);
  void all_gather(const CollectiveCall& call, bool blocking);
  void exchange_slices(const CollectiveCall& call, int64_t count, int half);
  void exchange_short_slices(int64_t bytes);
  void distribute_slices(const CollectiveCall& call, int64_t first, int64_t count, bool blocking);
  void all_reduce(const CollectiveCall& call, bool blocking);
  void sum_over_nodes(const CollectiveCall& call, int64_t count);
  void sum_by_tree(const CollectiveCall& call, int64_t count);
  void broadcast(const CollectiveCall& call, bool blocking);
  void broadcast_to_nodes(int root_node, std::byte* data, int64_t bytes);

  // receives(): true if this rank gets the result. node_receives(): true if a rank of its node
  // does. Only the root gets the result of a gather or a reduce.
  bool receives(const CollectiveCall& call) const {
    return !is_to_root(call.op) ||
           call.root == topology_.local_ranks()[static_cast<size_t>(topology_.local)];
  }
  bool node_receives(const CollectiveCall& call) const {
    return !is_to_root(call.op) || topology_.node_of(call.root) == topology_.node;
  }
  int64_t slice_step(DType dtype) const;
  Range rail_part(int64_t count, DType dtype) const;
  std::byte* staged(int local, int half, int64_t element, DType dtype) const;
  void combine_staged(const CollectiveCall& call, int half, int64_t element, int64_t count,
                      void* output);
  void combine_nodes(const CollectiveCall& call, std::span<const void* const> inputs, int64_t count,
                     DType out_dtype, void* output);
  void drain_rails(int half, int64_t element, int64_t count, std::byte* to, DType dtype) const;

  // Makes all transfers that are not empty. Throws CommError after the time-out.
  void exchange(std::vector<Transfer> sends, std::vector<Transfer> receives);

  const Topology& topology_;
  MpiComm rail_;
  MPI_Comm all_;
  NodeChannel& channel_;
  NodeCollectives& node_;
  Exec exec_;
  std::vector<int> by_node_;  // all ranks of the group, node by node
  Fingerprint current_;
  std::vector<std::byte> send_buffer_;
  std::vector<std::byte> receive_buffer_;
  std::vector<std::byte> result_;  // result of a reduction
  std::vector<MPI_Request> requests_;
  int64_t sent_bytes_ = 0;
};

}  // namespace shale::comm
