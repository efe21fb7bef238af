#include "shale/comm/watch/udp_socket.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "shale/base/error.h"

namespace shale::comm {
namespace {

constexpr std::array<uint8_t, 12> kIpv4Prefix = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

bool is_ipv4(const IpAddress& ip) {
  return std::equal(kIpv4Prefix.begin(), kIpv4Prefix.end(), ip.bytes.begin());
}

// An address in the form that system calls take.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = sizeof storage;

  SocketAddress() = default;
  explicit SocketAddress(const UdpAddress& address) {
    if (is_ipv4(address.ip)) {
      auto* const ipv4 = reinterpret_cast<sockaddr_in*>(&storage);
      ipv4->sin_family = AF_INET;
      ipv4->sin_port = address.port;
      std::memcpy(&ipv4->sin_addr, address.ip.bytes.data() + kIpv4Prefix.size(), 4);
      length = sizeof *ipv4;
    } else {
      auto* const ipv6 = reinterpret_cast<sockaddr_in6*>(&storage);
      ipv6->sin6_family = AF_INET6;
      ipv6->sin6_port = address.port;
      std::memcpy(&ipv6->sin6_addr, address.ip.bytes.data(), address.ip.bytes.size());
      length = sizeof *ipv6;
    }
  }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  uint16_t port() const {  // IPv4 and IPv6 addresses have the port in the same place
    return reinterpret_cast<const sockaddr_in*>(&storage)->sin_port;
  }
};

int open_socket(const IpAddress& ip) {
  return socket(is_ipv4(ip) ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

}  // namespace

std::optional<IpAddress> ip_address(const sockaddr* address) {
  IpAddress ip;
  if (address != nullptr && address->sa_family == AF_INET) {
    std::copy(kIpv4Prefix.begin(), kIpv4Prefix.end(), ip.bytes.begin());
    std::memcpy(ip.bytes.data() + kIpv4Prefix.size(),
                &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, 4);
    return ip;
  }
  if (address == nullptr || address->sa_family != AF_INET6) return {};
  const in6_addr& ipv6 = reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
  if (IN6_IS_ADDR_LINKLOCAL(&ipv6)) return {};
  std::memcpy(ip.bytes.data(), &ipv6, ip.bytes.size());
  return ip;
}

std::string ip_text(const IpAddress& ip) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const bool ipv4 = is_ipv4(ip);
  inet_ntop(ipv4 ? AF_INET : AF_INET6, ip.bytes.data() + (ipv4 ? kIpv4Prefix.size() : 0),
            text.data(), text.size());
  return text.data();
}

UdpSocket::UdpSocket(const IpAddress& ip) : socket_(open_socket(ip)) {
  SocketAddress wanted({.ip = ip}), bound;
  if (socket_ < 0 || bind(socket_, wanted.get(), wanted.length) != 0 ||
      getsockname(socket_, bound.get(), &bound.length) != 0) {
    const int reason = errno;
    if (socket_ >= 0) close(socket_);
    throw UnavailableError(cat("socket for datagrams on ", ip_text(ip), ": ", strerror(reason)));
  }
  address_ = {.ip = ip, .port = bound.port()};
}

UdpSocket::~UdpSocket() {
  if (socket_ >= 0) close(socket_);
}

UdpSocket::UdpSocket(UdpSocket&& other) noexcept
    : socket_(std::exchange(other.socket_, -1)), address_(other.address_) {}

UdpSocket& UdpSocket::operator=(UdpSocket&& other) noexcept {
  std::swap(socket_, other.socket_);
  std::swap(address_, other.address_);
  return *this;
}

void UdpSocket::send(const void* data, size_t bytes, const UdpAddress& to) const {
  SocketAddress address(to);
  static_cast<void>(sendto(socket_, data, bytes, 0, address.get(), address.length));
}

std::optional<UdpSocket::Received> UdpSocket::receive(void* data, size_t capacity) const {
  for (;;) {
    SocketAddress from;
    const ssize_t got = recvfrom(socket_, data, capacity, 0, from.get(), &from.length);
    if (got >= 0) {
      return Received{.bytes = static_cast<size_t>(got),
                      .from = ip_address(from.get()).value_or(IpAddress())};
    }
    if (errno != ECONNREFUSED && errno != EINTR) return {};  // an earlier send was refused
  }
}

// Connecting a UDP socket sends nothing: it only looks up the route.
IpAddress source_for(const IpAddress& ip) {
  const int probe = open_socket(ip);
  if (probe < 0) return {};
  constexpr uint16_t kAnyPort = 9;
  SocketAddress there({.ip = ip, .port = htons(kAnyPort)}), here;
  const bool found = connect(probe, there.get(), there.length) == 0 &&
                     getsockname(probe, here.get(), &here.length) == 0;
  close(probe);
  return (found ? ip_address(here.get()) : std::nullopt).value_or(IpAddress());
}

}  // namespace shale::comm
