#include <ifaddrs.h>
#include <net/if.h>
#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <map>

#include "shale/base/error.h"
#include "shale/comm/watch/heartbeat_link_internal.h"
#include "shale/comm/watch/heartbeat_neighbors.h"

namespace shale::comm {
namespace {

constexpr uint32_t kMagic = 0x53484c50;  // "SHLP" in ASCII
constexpr int kHeartbeatsAtOnce = 64;    // fit into one datagram of an Ethernet frame

UnavailableError system_error(const char* what) {
  return UnavailableError(cat("heartbeats between hosts: ", what, ": ", std::strerror(errno)));
}

}  // namespace

// Wire format. It is plain data, so all hosts must use the same byte order, as MPI_BYTE messages
// also require.
struct HeartbeatLink::Datagram {
  struct Entry {
    int32_t rank = 0;
    uint32_t reserved = 0;
    Heartbeat heartbeat;
  };
  uint32_t magic = kMagic;
  int32_t sender = 0;
  uint64_t nonce = 0;
  Failure failure;
  int32_t count = 0;
  uint32_t reserved = 0;
  std::array<Entry, kHeartbeatsAtOnce> entries{};

  static size_t bytes(int count) {
    return offsetof(Datagram, entries) + sizeof(Entry) * static_cast<size_t>(count);
  }
};

HeartbeatLink::HeartbeatLink(const MpiComm& world, const MpiComm& node) : rank_(world.rank()) {
  Home mine{.leader = rank_};
  check_mpi(MPI_Bcast(&mine.leader, 1, MPI_INT32_T, 0, node.get()), "MPI_Bcast");
  if (rank_ == 0 && getrandom(&nonce_, sizeof nonce_, 0) != sizeof nonce_) {
    throw system_error("getrandom");
  }
  check_mpi(MPI_Bcast(&nonce_, 1, MPI_UINT64_T, 0, world.get()), "MPI_Bcast");
  const auto exchange = [&] {
    std::vector<Home> homes(static_cast<size_t>(world.size()));
    check_mpi(MPI_Allgather(&mine, sizeof mine, MPI_BYTE, homes.data(), sizeof mine, MPI_BYTE,
                            world.get()),
              "MPI_Allgather");
    return homes;
  };
  mine.places = own_addresses();
  const std::vector<Home> homes = exchange();
  choose_neighbors(homes);
  mine.places = open_sockets(mine, homes);
  choose_peers(exchange());
}

// Lists this host's addresses, without ports and loopback. Interfaces are listed in the order of
// their creation, so the interfaces of containers are probably last.
HeartbeatLink::Places HeartbeatLink::own_addresses() {
  Places places{};
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) throw system_error("getifaddrs");
  size_t count = 0;
  for (const ifaddrs* i = list; i != nullptr && count < places.size(); i = i->ifa_next) {
    const auto ip = ip_address(i->ifa_addr);
    if (!ip || (i->ifa_flags & IFF_LOOPBACK) != 0 || (i->ifa_flags & IFF_UP) == 0) continue;
    places[count++].ip = *ip;
  }
  freeifaddrs(list);
  return places;
}

// Opens sockets on the addresses by which other hosts know this one; usually there is one. An
// address that both hosts have does not lead to the other host, for example that of a container
// bridge. It is ignored.
HeartbeatLink::Places HeartbeatLink::open_sockets(const Home& mine,
                                                  const std::vector<Home>& homes) {
  const auto is_own = [&](const IpAddress& ip) {
    return std::any_of(mine.places.begin(), mine.places.end(),
                       [&](const UdpAddress& own) { return own.ip == ip; });
  };
  std::vector<IpAddress> known_as;
  for (const int rank : watched_) {
    for (const UdpAddress& place : homes[static_cast<size_t>(rank)].places) {
      if (place.ip != IpAddress() && !is_own(place.ip)) known_as.push_back(source_for(place.ip));
    }
  }
  Places places{};
  for (size_t i = 0; i < places.size(); ++i) {
    const IpAddress& ip = mine.places[i].ip;
    if (ip == IpAddress() || std::find(known_as.begin(), known_as.end(), ip) == known_as.end())
      continue;
    sockets_.emplace_back(ip);
    places[i] = sockets_.back().address();
  }
  return places;
}

void HeartbeatLink::choose_neighbors(const std::vector<Home>& homes) {
  std::map<int32_t, std::vector<int>> by_leader;
  for (size_t r = 0; r < homes.size(); ++r) {
    by_leader[homes[r].leader].push_back(static_cast<int>(r));
  }
  std::vector<std::vector<int>> nodes;
  int own_node = 0;
  for (auto& [leader, ranks] : by_leader) {
    if (leader == homes[static_cast<size_t>(rank_)].leader)
      own_node = static_cast<int>(nodes.size());
    nodes.push_back(std::move(ranks));
  }
  own_ranks_ = nodes[static_cast<size_t>(own_node)];
  for (const int node : heartbeat_neighbors(own_node, static_cast<int>(nodes.size()))) {
    const std::vector<int>& ranks = nodes[static_cast<size_t>(node)];
    watched_.insert(watched_.end(), ranks.begin(), ranks.end());
    neighbors_.push_back(ranks);
  }
  std::sort(watched_.begin(), watched_.end());  // a node's ranks need not be consecutive
}

void HeartbeatLink::choose_peers(const std::vector<Home>& homes) {
  const auto local = static_cast<size_t>(std::find(own_ranks_.begin(), own_ranks_.end(), rank_) -
                                         own_ranks_.begin());
  for (const std::vector<int>& ranks : neighbors_) {
    for (size_t i = local; i < std::max(own_ranks_.size(), ranks.size()); i += own_ranks_.size()) {
      Peer peer{.rank = ranks[i % ranks.size()]};
      for (const UdpAddress& place : homes[static_cast<size_t>(peer.rank)].places) {
        if (place.port == 0) continue;
        const IpAddress source = source_for(place.ip);
        const auto socket =
            std::find_if(sockets_.begin(), sockets_.end(),
                         [&](const UdpSocket& own) { return own.address().ip == source; });
        if (socket == sockets_.end()) continue;
        peer.ways.push_back(
            {.socket = static_cast<size_t>(socket - sockets_.begin()), .to = place});
      }
      if (peer.ways.empty()) {
        out_of_reach_.insert(out_of_reach_.end(), ranks.begin(), ranks.end());
      }
      peers_.push_back(std::move(peer));
    }
  }
  std::sort(out_of_reach_.begin(), out_of_reach_.end());
  const auto twice = std::unique(out_of_reach_.begin(), out_of_reach_.end());
  out_of_reach_.erase(twice, out_of_reach_.end());
}

void HeartbeatLink::send(const HeartbeatTable& table, const Failure& failure) const {
  for (size_t first = 0; first < own_ranks_.size(); first += kHeartbeatsAtOnce) {
    Datagram datagram{.sender = rank_, .nonce = nonce_, .failure = failure};
    for (size_t i = first; i < own_ranks_.size() && datagram.count < kHeartbeatsAtOnce; ++i) {
      datagram.entries[static_cast<size_t>(datagram.count++)] = {
          .rank = own_ranks_[i], .heartbeat = table.get(own_ranks_[i])};
    }
    for (const Peer& peer : peers_) {
      for (const Way& way : peer.ways) {
        sockets_[way.socket].send(&datagram, Datagram::bytes(datagram.count), way.to);
      }
    }
  }
}

void HeartbeatLink::receive(HeartbeatTable& table) {
  for (const UdpSocket& socket : sockets_) {
    Datagram datagram;
    while (const auto got = socket.receive(&datagram, sizeof datagram)) {
      if (is_ours(datagram, got->bytes)) take(datagram, got->from, table);
    }
  }
}

bool HeartbeatLink::is_ours(const Datagram& datagram, size_t bytes) const {
  return bytes >= Datagram::bytes(0) && datagram.magic == kMagic && datagram.nonce == nonce_ &&
         datagram.count >= 0 && datagram.count <= kHeartbeatsAtOnce &&
         bytes == Datagram::bytes(datagram.count);
}

void HeartbeatLink::take(const Datagram& datagram, const IpAddress& from, HeartbeatTable& table) {
  for (Peer& peer : peers_) {
    if (peer.rank != datagram.sender) continue;
    // From now on, use only the address from which this datagram came.
    const auto way = std::find_if(peer.ways.begin(), peer.ways.end(),
                                  [&](const Way& w) { return w.to.ip == from; });
    if (way != peer.ways.end()) peer.ways = {Way(*way)};
  }
  for (int i = 0; i < datagram.count; ++i) {
    const Datagram::Entry& entry = datagram.entries[static_cast<size_t>(i)];
    if (entry.rank < 0 || entry.rank >= table.ranks()) continue;
    table.put(entry.rank, entry.heartbeat);
  }
  if (datagram.failure.code == 0) return;
  // Another node may send back a failure that this node has reported.
  const bool is_own =
      std::binary_search(own_ranks_.begin(), own_ranks_.end(), datagram.failure.rank);
  table.set_failure_elsewhere(datagram.failure.code, is_own ? -1 : datagram.failure.rank);
}

}  // namespace shale::comm
