#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "comm/mpi_internal.h"
#include "comm/pulse_table.h"

namespace shale::comm {

// Carries the pulses of this node's ranks to other nodes, and theirs here, as datagrams of their
// own: MPI's connections say nothing when a link is down, and stall when packets are lost, and its
// calls may block a thread that must not be blocked.
//
// Rank l of a node sends to rank l of each other node what it knows of all ranks of its own node
// (where one node has fewer ranks, its ranks stand for several). So every process of a node sends
// its news and receives others', and one of them being stopped silences nobody else. Datagrams
// carry a number drawn at the start, which strangers do not know; they are neither encrypted nor
// signed, as MPI's own messages are not.
class PulseLink {
 public:
  // Collective over `world`. Throws UnavailableError if there can be no socket.
  PulseLink(const MpiComm& world, const MpiComm& node);
  ~PulseLink();
  PulseLink(const PulseLink&) = delete;
  PulseLink& operator=(const PulseLink&) = delete;

  // Neither waits. failure: the exit code with which this node's ranks are ending; 0: they are not.
  void send(const PulseTable& table, int failure) const;
  void receive(PulseTable& table);

 private:
  static constexpr size_t kAddresses = 4;
  struct Place {
    uint32_t ip = 0;    // network byte order; 0: none
    uint32_t mask = 0;  // of its network
  };
  struct Home {
    int32_t leader = 0;  // the lowest rank of its node
    uint16_t port = 0;   // network byte order
    std::array<Place, kAddresses> places{};
  };
  // One rank of another node, to which this one sends.
  struct Peer {
    int rank = 0;
    uint16_t port = 0;
    std::vector<uint32_t> ips;  // to try; those on a network of ours first
    uint32_t heard_from = 0;    // the one that works
  };
  struct Datagram;

  uint16_t open_socket();
  static std::array<Place, kAddresses> own_places();
  void choose_peers(const std::vector<Home>& homes, int rank);

  int socket_ = -1;
  uint64_t nonce_ = 0;
  int rank_ = 0;
  std::vector<int> own_ranks_;  // of this node
  std::vector<Peer> peers_;
};

}  // namespace shale::comm
