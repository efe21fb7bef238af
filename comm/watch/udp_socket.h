#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace shale::comm {

// IPv4 address and port, both in network byte order.
struct UdpAddress {
  uint32_t ip = 0;
  uint16_t port = 0;
};

// UDP socket bound to one address of this host, on a port chosen by the system; datagrams to the
// host's other addresses do not reach it. No function waits.
class UdpSocket {
 public:
  // Throws UnavailableError if no socket can be made, or `ip` is not an address of this host.
  explicit UdpSocket(uint32_t ip);
  ~UdpSocket();
  UdpSocket(UdpSocket&& other) noexcept;
  UdpSocket& operator=(UdpSocket&& other) noexcept;

  UdpAddress address() const { return address_; }
  // Sends a datagram; errors count as lost datagrams.
  void send(const void* data, size_t bytes, const UdpAddress& to) const;
  // The next datagram: its length (longer datagrams are cut to `capacity`) and its sender's IP
  // address. receive() returns nullopt if none has arrived.
  struct Received {
    size_t bytes = 0;
    uint32_t from = 0;
  };
  std::optional<Received> receive(void* data, size_t capacity) const;

 private:
  int socket_ = -1;
  UdpAddress address_;
};

// Returns the source address of this host for datagrams to `ip`, according to its routes; the host
// at `ip` knows this host by it. 0: no route.
uint32_t source_for(uint32_t ip);

std::string ip_text(uint32_t ip);  // "10.0.0.1"

}  // namespace shale::comm
