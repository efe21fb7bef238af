#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace shale::comm {

// Where datagrams go to: an IPv4 address and a port, both in network byte order.
struct UdpAddress {
  uint32_t ip = 0;
  uint16_t port = 0;
};

// A socket for datagrams that is bound to one address of this host, on a port that the system
// chooses: what is sent to the host's other addresses does not reach it. Nothing here waits.
class UdpSocket {
 public:
  // Throws UnavailableError if there can be no socket, or `ip` is no address of this host.
  explicit UdpSocket(uint32_t ip);
  ~UdpSocket();
  UdpSocket(UdpSocket&& other) noexcept;
  UdpSocket& operator=(UdpSocket&& other) noexcept;

  UdpAddress address() const { return address_; }
  // What does not get out is what does not arrive.
  void send(const void* data, size_t bytes, const UdpAddress& to) const;
  // The next datagram's length (of a longer one the first `capacity` bytes), and its sender's ip;
  // nothing if there is none now.
  struct Received {
    size_t bytes = 0;
    uint32_t from = 0;
  };
  std::optional<Received> receive(void* data, size_t capacity) const;

 private:
  int socket_ = -1;
  UdpAddress address_;
};

// The address of this host that datagrams to `ip` leave from, as its routes have it, and by which
// the host there knows this one; 0: there is no way there.
uint32_t source_for(uint32_t ip);

std::string ip_text(uint32_t ip);  // "10.0.0.1"

}  // namespace shale::comm
