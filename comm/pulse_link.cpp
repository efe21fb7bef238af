#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <map>

#include "comm/pulse_link_internal.h"
#include "runtime/base/error.h"

namespace shale::comm {
namespace {

constexpr uint32_t kMagic = 0x53484c50;  // "SHLP"
constexpr int kPulsesAtOnce = 64;        // of a datagram, which then fits an Ethernet frame

UnavailableError socket_error(const char* what) {
  return UnavailableError(cat("heartbeats between hosts: ", what, ": ", std::strerror(errno)));
}

sockaddr_in address_of(uint32_t ip, uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = port;
  address.sin_addr.s_addr = ip;
  return address;
}

}  // namespace

// What travels: plain data between machines of one kind, as MPI_BYTE does elsewhere.
struct PulseLink::Datagram {
  struct Entry {
    int32_t rank = 0;
    uint32_t reserved = 0;
    Pulse pulse;
  };
  uint32_t magic = kMagic;
  int32_t sender = 0;
  uint64_t nonce = 0;
  int32_t failure = 0;
  int32_t count = 0;
  std::array<Entry, kPulsesAtOnce> entries{};

  static size_t bytes(int count) {
    return offsetof(Datagram, entries) + sizeof(Entry) * static_cast<size_t>(count);
  }
};

PulseLink::PulseLink(const MpiComm& world, const MpiComm& node) : rank_(world.rank()) {
  Home mine{.leader = world.rank(), .port = open_socket(), .places = own_places()};
  check_mpi(MPI_Bcast(&mine.leader, 1, MPI_INT32_T, 0, node.get()), "MPI_Bcast");
  if (rank_ == 0 && getrandom(&nonce_, sizeof nonce_, 0) != sizeof nonce_) {
    throw socket_error("getrandom");
  }
  check_mpi(MPI_Bcast(&nonce_, 1, MPI_UINT64_T, 0, world.get()), "MPI_Bcast");
  std::vector<Home> homes(static_cast<size_t>(world.size()));
  check_mpi(
      MPI_Allgather(&mine, sizeof mine, MPI_BYTE, homes.data(), sizeof mine, MPI_BYTE, world.get()),
      "MPI_Allgather");
  choose_peers(homes, rank_);
}

PulseLink::~PulseLink() {
  close(socket_);
}

uint16_t PulseLink::open_socket() {
  socket_ = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (socket_ < 0) throw socket_error("socket");
  const sockaddr_in any = address_of(htonl(INADDR_ANY), 0);
  sockaddr_in bound{};
  socklen_t length = sizeof bound;
  if (bind(socket_, reinterpret_cast<const sockaddr*>(&any), sizeof any) != 0 ||
      getsockname(socket_, reinterpret_cast<sockaddr*>(&bound), &length) != 0) {
    const UnavailableError error = socket_error("bind");
    close(socket_);
    throw error;
  }
  return bound.sin_port;
}

// Not the loopback's, and those that come up with a host's containers last, as far as one can tell:
// interfaces are listed in the order in which they were made.
std::array<PulseLink::Place, PulseLink::kAddresses> PulseLink::own_places() {
  std::array<Place, kAddresses> places{};
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) throw socket_error("getifaddrs");
  size_t count = 0;
  for (const ifaddrs* i = list; i != nullptr && count < places.size(); i = i->ifa_next) {
    if (i->ifa_addr == nullptr || i->ifa_addr->sa_family != AF_INET || i->ifa_netmask == nullptr) {
      continue;
    }
    if ((i->ifa_flags & IFF_LOOPBACK) != 0 || (i->ifa_flags & IFF_UP) == 0) continue;
    places[count++] = {
        .ip = reinterpret_cast<const sockaddr_in*>(i->ifa_addr)->sin_addr.s_addr,
        .mask = reinterpret_cast<const sockaddr_in*>(i->ifa_netmask)->sin_addr.s_addr};
  }
  freeifaddrs(list);
  return places;
}

void PulseLink::choose_peers(const std::vector<Home>& homes, int rank) {
  std::map<int32_t, std::vector<int>> ranks_of;  // by the node's leader
  for (size_t r = 0; r < homes.size(); ++r)
    ranks_of[homes[r].leader].push_back(static_cast<int>(r));
  const Home& mine = homes[static_cast<size_t>(rank)];
  own_ranks_ = ranks_of[mine.leader];
  const auto local = static_cast<size_t>(std::find(own_ranks_.begin(), own_ranks_.end(), rank) -
                                         own_ranks_.begin());
  const auto is_near = [&](const Place& place) {
    return std::any_of(mine.places.begin(), mine.places.end(), [&](const Place& own) {
      return own.ip != 0 && ((own.ip ^ place.ip) & own.mask) == 0;
    });
  };
  for (const auto& [leader, ranks] : ranks_of) {
    if (leader == mine.leader) continue;
    for (size_t i = local; i < std::max(own_ranks_.size(), ranks.size()); i += own_ranks_.size()) {
      const int theirs = ranks[i % ranks.size()];
      const Home& home = homes[static_cast<size_t>(theirs)];
      Peer peer{.rank = theirs, .port = home.port};
      for (const bool near : {true, false}) {
        for (const Place& place : home.places) {
          if (place.ip != 0 && is_near(place) == near) peer.ips.push_back(place.ip);
        }
      }
      peers_.push_back(std::move(peer));
    }
  }
}

void PulseLink::send(const PulseTable& table, int failure) const {
  for (size_t first = 0; first < own_ranks_.size(); first += kPulsesAtOnce) {
    Datagram datagram{.sender = rank_, .nonce = nonce_, .failure = failure};
    for (size_t i = first; i < own_ranks_.size() && datagram.count < kPulsesAtOnce; ++i) {
      datagram.entries[static_cast<size_t>(datagram.count++)] = {.rank = own_ranks_[i],
                                                                 .pulse = table.get(own_ranks_[i])};
    }
    const auto send_to = [&](uint32_t ip, uint16_t port) {
      const sockaddr_in to = address_of(ip, port);
      // What does not get out is what does not arrive.
      static_cast<void>(sendto(socket_, &datagram, Datagram::bytes(datagram.count), 0,
                               reinterpret_cast<const sockaddr*>(&to), sizeof to));
    };
    for (const Peer& peer : peers_) {
      if (peer.heard_from != 0) {
        send_to(peer.heard_from, peer.port);
        continue;
      }
      for (const uint32_t ip : peer.ips) send_to(ip, peer.port);
    }
  }
}

void PulseLink::receive(PulseTable& table) {
  for (;;) {
    Datagram datagram;
    sockaddr_in from{};
    socklen_t length = sizeof from;
    const ssize_t got = recvfrom(socket_, &datagram, sizeof datagram, 0,
                                 reinterpret_cast<sockaddr*>(&from), &length);
    if (got < 0) {
      if (errno == ECONNREFUSED || errno == EINTR) continue;  // an earlier send's answer; a signal
      return;
    }
    const auto bytes = static_cast<size_t>(got);
    if (bytes < Datagram::bytes(0) || datagram.magic != kMagic || datagram.nonce != nonce_)
      continue;
    if (datagram.count < 0 || datagram.count > kPulsesAtOnce ||
        bytes != Datagram::bytes(datagram.count)) {
      continue;
    }
    for (Peer& peer : peers_) {
      if (peer.rank == datagram.sender) peer.heard_from = from.sin_addr.s_addr;
    }
    for (int i = 0; i < datagram.count; ++i) {
      const Datagram::Entry& entry = datagram.entries[static_cast<size_t>(i)];
      if (entry.rank < 0 || entry.rank >= table.ranks()) continue;
      table.put(entry.rank, entry.pulse);
    }
    if (datagram.failure != 0) table.set_failure_elsewhere(datagram.failure);
  }
}

}  // namespace shale::comm
