#include "shale/comm/watch/udp_socket.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "shale/base/error.h"

namespace shale::comm {
namespace {

sockaddr_in socket_address(const UdpAddress& address) {
  sockaddr_in result{};
  result.sin_family = AF_INET;
  result.sin_port = address.port;
  result.sin_addr.s_addr = address.ip;
  return result;
}

int open_socket() {
  return socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

// Reads the address to which the socket is bound.
bool own_address(int socket, sockaddr_in& address) {
  socklen_t length = sizeof address;
  return getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length) == 0;
}

}  // namespace

UdpSocket::UdpSocket(uint32_t ip) : socket_(open_socket()) {
  const sockaddr_in wanted = socket_address({.ip = ip});
  sockaddr_in bound{};
  if (socket_ < 0 ||
      bind(socket_, reinterpret_cast<const sockaddr*>(&wanted), sizeof wanted) != 0 ||
      !own_address(socket_, bound)) {
    const int reason = errno;
    if (socket_ >= 0) close(socket_);
    throw UnavailableError(cat("socket for datagrams on ", ip_text(ip), ": ", strerror(reason)));
  }
  address_ = {.ip = ip, .port = bound.sin_port};
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
  const sockaddr_in address = socket_address(to);
  static_cast<void>(
      sendto(socket_, data, bytes, 0, reinterpret_cast<const sockaddr*>(&address), sizeof address));
}

std::optional<UdpSocket::Received> UdpSocket::receive(void* data, size_t capacity) const {
  for (;;) {
    sockaddr_in from{};
    socklen_t length = sizeof from;
    const ssize_t got =
        recvfrom(socket_, data, capacity, 0, reinterpret_cast<sockaddr*>(&from), &length);
    if (got >= 0) return Received{.bytes = static_cast<size_t>(got), .from = from.sin_addr.s_addr};
    if (errno != ECONNREFUSED && errno != EINTR) return {};  // an earlier send was refused: ignored
  }
}

// Connecting a UDP socket sends nothing: it only looks up the route.
uint32_t source_for(uint32_t ip) {
  const int probe = open_socket();
  if (probe < 0) return 0;
  constexpr uint16_t kAnyPort = 9;
  const sockaddr_in there = socket_address({.ip = ip, .port = htons(kAnyPort)});
  sockaddr_in here{};
  const bool found = connect(probe, reinterpret_cast<const sockaddr*>(&there), sizeof there) == 0 &&
                     own_address(probe, here);
  close(probe);
  return found ? here.sin_addr.s_addr : 0;
}

std::string ip_text(uint32_t ip) {
  std::array<char, INET_ADDRSTRLEN> text{};
  const in_addr address{.s_addr = ip};
  inet_ntop(AF_INET, &address, text.data(), text.size());
  return text.data();
}

}  // namespace shale::comm
