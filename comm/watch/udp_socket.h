#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

struct sockaddr;

namespace shale::comm {

// IP address of an interface. IPv4 addresses have the form ::ffff:a.b.c.d. All zeros: none.
struct IpAddress {
  std::array<uint8_t, 16> bytes{};

  friend bool operator==(const IpAddress&, const IpAddress&) = default;
};

// Returns nullopt for an address of another family, and for link-local addresses of IPv6, which
// name different hosts on different links.
std::optional<IpAddress> ip_address(const sockaddr* address);
std::string ip_text(const IpAddress& ip);  // "10.0.0.1"

struct UdpAddress {
  IpAddress ip;
  uint16_t port = 0;  // port in network byte order
};

// UDP socket bound to one address of this host, on a port that the system chooses. Datagrams to
// other addresses of the host do not reach it. No function waits.
class UdpSocket {
 public:
  // Throws UnavailableError if no socket can be made, or `ip` is not an address of this host.
  explicit UdpSocket(const IpAddress& ip);
  ~UdpSocket();
  UdpSocket(UdpSocket&& other) noexcept;
  UdpSocket& operator=(UdpSocket&& other) noexcept;

  const UdpAddress& address() const { return address_; }
  // Sends a datagram; errors count as lost datagrams.
  void send(const void* data, size_t bytes, const UdpAddress& to) const;
  // A received datagram: its length and its sender's IP address. Longer datagrams are cut to
  // `capacity`. receive() returns nullopt if none has arrived.
  struct Received {
    size_t bytes = 0;
    IpAddress from;
  };
  std::optional<Received> receive(void* data, size_t capacity) const;

 private:
  int socket_ = -1;
  UdpAddress address_;
};

// Returns the address of this host from which datagrams go to `ip`, according to its routes. The
// host at `ip` knows this host by it. All zeros: no route.
IpAddress source_for(const IpAddress& ip);

}  // namespace shale::comm
