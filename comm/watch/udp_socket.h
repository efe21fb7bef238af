#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

struct sockaddr;

namespace shale::comm {

// Address of an interface: of IPv6, or of IPv4 in the form ::ffff:a.b.c.d. All zeros: none.
struct IpAddress {
  std::array<uint8_t, 16> bytes{};

  friend bool operator==(const IpAddress&, const IpAddress&) = default;
};

// Returns nothing for an address of another family, and for link-local addresses of IPv6, which
// name different hosts on different links.
std::optional<IpAddress> ip_address(const sockaddr* address);
std::string ip_text(const IpAddress& ip);  // "10.0.0.1"

struct UdpAddress {
  IpAddress ip;
  uint16_t port = 0;  // in network byte order
};

// UDP socket bound to one address of this host, on a port chosen by the system; datagrams to the
// host's other addresses do not reach it. No function waits.
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
  // The next datagram: its length (longer datagrams are cut to `capacity`) and its sender's IP
  // address. receive() returns nullopt if none has arrived.
  struct Received {
    size_t bytes = 0;
    IpAddress from;
  };
  std::optional<Received> receive(void* data, size_t capacity) const;

 private:
  int socket_ = -1;
  UdpAddress address_;
};

// Returns the source address of this host for datagrams to `ip`, according to its routes; the host
// at `ip` knows this host by it. All zeros: no route.
IpAddress source_for(const IpAddress& ip);

}  // namespace shale::comm
