#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "shale/comm/mpi_internal.h"
#include "shale/comm/watch/heartbeat_table.h"
#include "shale/comm/watch/udp_socket.h"

namespace shale::comm {

// Sends the heartbeats of this node's ranks to other nodes and receives theirs, as UDP datagrams.
// MPI is unsuitable: its connections do not report a link that is down, stall when packets are
// lost, and its calls may block a thread that must not block.
//
// Rank l of a node sends to rank l of each neighbor node (heartbeat_neighbors.h). If one of the two
// nodes has fewer ranks, its ranks send or receive for several. A datagram has the heartbeats of
// all ranks of the sender's node, and whether ranks fail anywhere, which nodes forward. Every
// process of a node sends and receives, so one stopped process does not silence the other ranks of
// its node. Sockets listen only on the addresses by which other hosts know this one. Datagrams
// carry a random number, so that those of other jobs are ignored. They are neither encrypted nor
// signed.
class HeartbeatLink {
 public:
  // Collective over `world`. Throws UnavailableError if no socket can be made.
  HeartbeatLink(const MpiComm& world, const MpiComm& node);

  // Ranks of the neighbor nodes, sorted. This node watches them.
  const std::vector<int>& watched() const { return watched_; }

  // Ranks of the neighbor nodes that no address of this host reaches, sorted. They are not watched.
  const std::vector<int>& out_of_reach() const { return out_of_reach_; }

  struct Failure {
    int32_t code = 0;   // exit code; 0: no failure
    int32_t rank = -1;  // lowest rank among those that failed first; -1: unknown
    friend bool operator==(const Failure&, const Failure&) = default;
  };
  // Neither send() nor receive() waits. failure: that of a rank of this node, or one of another
  // node if this node knows of it.
  void send(const HeartbeatTable& table, const Failure& failure) const;
  void receive(HeartbeatTable& table);

 private:
  static constexpr size_t kAddresses = 16;
  // an address without IP is unused; one with port 0 has no listener
  using Places = std::array<UdpAddress, kAddresses>;
  // Addresses of one rank. Plain data: it is sent.
  struct Home {
    int32_t leader = 0;  // lowest rank of its node
    Places places{};
  };
  struct Way {
    size_t socket = 0;  // index of this host's socket
    UdpAddress to;
  };
  // One rank of another node, to which this rank sends.
  struct Peer {
    int rank = 0;
    std::vector<Way> ways;  // all candidate addresses; after the first datagram, only its sender's
  };
  struct Datagram;

  static Places own_addresses();
  void choose_neighbors(const std::vector<Home>& homes);
  Places open_sockets(const Home& mine, const std::vector<Home>& homes);
  void choose_peers(const std::vector<Home>& homes);
  bool is_ours(const Datagram& datagram, size_t bytes) const;
  void take(const Datagram& datagram, const IpAddress& from, HeartbeatTable& table);

  std::vector<UdpSocket> sockets_;
  uint64_t nonce_ = 0;
  int rank_ = 0;
  std::vector<int> own_ranks_;               // ranks of this node
  std::vector<std::vector<int>> neighbors_;  // ranks of each neighbor node
  std::vector<int> watched_;                 // all ranks of neighbors_ in one list
  std::vector<int> out_of_reach_;
  std::vector<Peer> peers_;
};

}  // namespace shale::comm
