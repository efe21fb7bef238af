#include "shale/comm/watch/udp_socket.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <array>
#include <chrono>
#include <thread>

#include "shale/base/error.h"
#include "shale/test/support/catch.h"

namespace shale::comm {
namespace {

IpAddress ip(const std::string& text) {
  sockaddr_in ipv4{.sin_family = AF_INET};
  sockaddr_in6 ipv6{.sin6_family = AF_INET6};
  if (inet_pton(AF_INET, text.c_str(), &ipv4.sin_addr) == 1) {
    return ip_address(reinterpret_cast<const sockaddr*>(&ipv4)).value();
  }
  REQUIRE(inet_pton(AF_INET6, text.c_str(), &ipv6.sin6_addr) == 1);
  return ip_address(reinterpret_cast<const sockaddr*>(&ipv6)).value_or(IpAddress());
}

IpAddress loopback(int last) {
  return ip(cat("127.0.0.", last));  // a loopback address, so all sockets are on this host
}

// Returns the next message, or nothing if none arrives within a second.
std::optional<UdpSocket::Received> wait_for(const UdpSocket& socket, std::array<char, 8>& data) {
  for (int i = 0; i < 1000; ++i) {
    if (const auto got = socket.receive(data.data(), data.size())) return got;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return {};
}

}  // namespace

TEST_CASE("a socket hears what is sent to its address, and nothing sent to another of the host") {
  const UdpSocket here(loopback(1)), sender(loopback(3));
  CHECK(here.address().port != 0);
  std::array<char, 8> data{};
  CHECK_FALSE(here.receive(data.data(), data.size()));
  sender.send("other", 5, {.ip = loopback(2), .port = here.address().port});
  sender.send("own", 3, here.address());
  const auto got = wait_for(here, data);
  REQUIRE(got);
  // A datagram of another sender would have come first.
  CHECK(std::string(data.data(), got->bytes) == "own");
  CHECK(got->from == loopback(3));
  CHECK_FALSE(here.receive(data.data(), data.size()));
}

TEST_CASE("a datagram to nobody does not end a socket's use") {
  const UdpSocket here(loopback(1)), sender(loopback(1));
  uint16_t unused = 0;
  {
    const UdpSocket gone(loopback(1));
    unused = gone.address().port;
  }
  sender.send("x", 1, {.ip = loopback(1), .port = unused});
  std::array<char, 8> data{};
  CHECK_FALSE(sender.receive(data.data(), data.size()));
  sender.send("y", 1, here.address());
  CHECK(wait_for(here, data));
}

TEST_CASE("an address that is not this host's cannot be listened on") {
  const IpAddress documentation = ip("192.0.2.1");  // reserved for documentation (RFC 5737)
  CHECK(test::contains(test::message_of<UnavailableError>([&] { UdpSocket socket(documentation); }),
                       "192.0.2.1"));
}

TEST_CASE("datagrams to this host leave from it") {
  CHECK(source_for(loopback(1)) == loopback(1));
}

TEST_CASE("a socket of IPv6 hears what is sent to its address") {
  const IpAddress loopback6 = ip("::1");
  if (source_for(loopback6) != loopback6) {
    WARN("not tested: this host has no IPv6");
    return;
  }
  const UdpSocket here(loopback6), sender(loopback6);
  sender.send("own", 3, here.address());
  std::array<char, 8> data{};
  const auto got = wait_for(here, data);
  REQUIRE(got);
  CHECK(got->from == loopback6);
}

TEST_CASE("addresses of both families have their usual text, and link-local ones are left out") {
  for (const char* text : {"127.0.0.1", "10.1.2.3", "2001:db8::1", "::1"}) {
    CHECK(ip_text(ip(text)) == text);
  }
  CHECK(ip("fe80::1") == IpAddress());
  CHECK(ip_address(nullptr) == std::nullopt);
}

}  // namespace shale::comm
