#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "shale/comm/mpi_internal.h"
#include "shale/comm/watch/heartbeat_table.h"
#include "shale/comm/watch/udp_socket.h"

namespace shale::comm {

// Carries the heartbeats of this node's ranks to other nodes, and theirs here, as datagrams of
// their own: MPI's connections say nothing when a link is down, and stall when packets are lost,
// and its calls may block a thread that must not be blocked.
//
// Rank l of a node sends to rank l of each neighbor (heartbeat_neighbors.h) what it knows of all
// ranks of its own node (where one node has fewer ranks, its ranks stand for several), and that
// ranks fail anywhere, which is passed on from node to node. So every process of a node sends
// its news and receives others', and one of them being stopped silences nobody else. Sockets listen
// on the addresses by which the other hosts know this one, and on no others. Datagrams carry a
// number drawn at the start, which strangers do not know; they are neither encrypted nor signed, as
// MPI's own messages are not.
class HeartbeatLink {
 public:
  // Collective over `world`. Throws UnavailableError if there can be no socket.
  HeartbeatLink(const MpiComm& world, const MpiComm& node);

  // The ranks of the neighbors, which this node would miss, in order.
  const std::vector<int>& watched() const { return watched_; }

  // Neither waits. failure: the exit code with which this node's ranks are ending, or others are of
  // which it has heard; 0: none is.
  void send(const HeartbeatTable& table, int failure) const;
  void receive(HeartbeatTable& table);

 private:
  static constexpr size_t kAddresses = 4;
  using Places = std::array<UdpAddress, kAddresses>;  // ip 0: none; port 0: nobody listens there
  // Address of one rank. Plain data: it is sent.
  struct Home {
    int32_t leader = 0;  // the lowest rank of its node
    Places places{};
  };
  struct Way {
    size_t socket = 0;  // ours
    UdpAddress to;
  };
  // One rank of another node, to which this one sends.
  struct Peer {
    int rank = 0;
    std::vector<Way> ways;  // all that there may be, until it is heard on one
  };
  struct Datagram;

  static Places own_addresses();
  void choose_neighbors(const std::vector<Home>& homes);
  Places open_sockets(const Home& mine, const std::vector<Home>& homes);
  void choose_peers(const std::vector<Home>& homes);
  bool is_ours(const Datagram& datagram, size_t bytes) const;
  void take(const Datagram& datagram, uint32_t from, HeartbeatTable& table);

  std::vector<UdpSocket> sockets_;
  uint64_t nonce_ = 0;
  int rank_ = 0;
  std::vector<int> own_ranks_;               // of this node
  std::vector<std::vector<int>> neighbors_;  // ranks, by node
  std::vector<int> watched_;                 // the same in one list
  std::vector<Peer> peers_;
};

}  // namespace shale::comm
