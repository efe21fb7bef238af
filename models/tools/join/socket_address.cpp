#include "shale/models/tools/join/socket_address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <functional>
#include <memory>

#include "shale/base/error.h"
#include "shale/base/host_name.h"
#include "shale/base/parse.h"
#include "shale/comm/watch/udp_socket.h"

namespace shale::models {
namespace {

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

Addresses look_up(const HostPort& at, bool to_listen, std::string& why) {
  const addrinfo hints{
      .ai_flags = to_listen ? AI_PASSIVE : 0, .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
  addrinfo* found = nullptr;
  const int error = getaddrinfo(at.host.empty() ? nullptr : at.host.c_str(),
                                std::to_string(at.port).c_str(), &hints, &found);
  if (error != 0) why = gai_strerror(error);
  return {found, freeaddrinfo};
}

int open_socket(int family) {
  const int made = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const int on = 1;
  if (made >= 0 && family != AF_UNIX) setsockopt(made, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return made;
}

// Returns true if the socket is connected in time; otherwise sets errno.
bool connect_within(int socket, const addrinfo& there, double timeout_s) {
  if (connect(socket, there.ai_addr, there.ai_addrlen) == 0) return true;
  if (errno != EINPROGRESS) return false;
  pollfd ready{.fd = socket, .events = POLLOUT, .revents = 0};
  if (poll(&ready, 1, static_cast<int>(timeout_s * 1000)) <= 0) {
    errno = ETIMEDOUT;
    return false;
  }
  socklen_t size = sizeof errno;
  int error = 0;
  getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size);
  errno = error;
  return error == 0;
}

std::string text_of(const sockaddr* address) {
  const auto ip = comm::ip_address(address);
  return ip ? comm::ip_text(*ip) : "unknown";
}

std::string address_of(int socket, decltype(&getpeername) ask) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  auto* const found = reinterpret_cast<sockaddr*>(&address);
  return ask(socket, found, &size) == 0 ? text_of(found) : "unknown";
}

}  // namespace

HostPort parse_host_port(const std::string& what, const std::string& text) {
  const size_t colon = text.rfind(':');
  std::string host = text.substr(0, colon == text.npos ? 0 : colon);
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) host = host.substr(1, host.size() - 2);
  const auto port = parse_int(colon == text.npos ? "" : text.substr(colon + 1));
  const bool is_name = bracketed || host.find_first_of(":[]") == host.npos;
  if (port && *port > 0 && *port < 65536 && is_name) return {host, static_cast<int>(*port)};
  throw ConfigError(
      cat(what, ": expected HOST:PORT, such as 10.0.0.1:29500, found '", excerpt(text), "'"));
}

int listen_on(const HostPort& at) {
  std::string why = "no such address on this host";
  const Addresses found = look_up(at, /*to_listen=*/true, why);
  // Tries IPv6 first, because an IPv6 socket also accepts IPv4.
  for (const int family : {AF_INET6, AF_INET}) {
    for (const addrinfo* i = found.get(); i != nullptr; i = i->ai_next) {
      const int made = i->ai_family == family ? open_socket(family) : -1;
      if (made < 0) continue;
      const int on = 1, off = 0;
      setsockopt(made, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
      if (family == AF_INET6) setsockopt(made, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
      if (bind(made, i->ai_addr, i->ai_addrlen) == 0 && listen(made, SOMAXCONN) == 0) return made;
      why = std::strerror(errno);
      close(made);
    }
  }
  throw UnavailableError(cat("cannot listen on ", at.host, ":", at.port, ": ", why,
                             "; if another run's head is there, choose a port with --listen"));
}

int connect_to(const HostPort& there, double timeout_s, std::string& why) {
  const Addresses found = look_up(there, /*to_listen=*/false, why);
  for (const addrinfo* i = found.get(); i != nullptr; i = i->ai_next) {
    const int made = open_socket(i->ai_family);
    if (made >= 0 && connect_within(made, *i, timeout_s)) return made;
    why = std::strerror(errno);
    if (made >= 0) close(made);
  }
  return -1;
}

int file_socket(const std::string& path, bool listens) {
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  if (path.size() >= sizeof address.sun_path) {
    throw UnavailableError(cat("socket ", path, ": expected at most ", sizeof address.sun_path - 1,
                               " bytes; set TMPDIR to a shorter path"));
  }
  std::copy(path.begin(), path.end(), address.sun_path);
  const auto* const place = reinterpret_cast<const sockaddr*>(&address);
  const int made = open_socket(AF_UNIX);
  const bool done =
      made >= 0 && (listens ? bind(made, place, sizeof address) == 0 && listen(made, SOMAXCONN) == 0
                            : connect(made, place, sizeof address) == 0);
  if (!done) throw UnavailableError(cat("socket ", path, ": ", std::strerror(errno)));
  return made;
}

std::string peer_address(int socket) {
  return address_of(socket, getpeername);
}

std::string local_address(int socket) {
  return address_of(socket, getsockname);
}

namespace {

// Calls `use` for each IPv4 address of this host except those of the loopback device.
void for_own_networks(const std::function<void(const ifaddrs& network)>& use) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return;
  for (const ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr || i->ifa_addr->sa_family != AF_INET) continue;
    if ((i->ifa_flags & IFF_LOOPBACK) == 0 && i->ifa_netmask != nullptr) use(*i);
  }
  freeifaddrs(list);
}

}  // namespace

std::vector<std::string> own_addresses() {
  const sockaddr_in anywhere{
      .sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(0x01010101)}, .sin_zero = {}};
  const auto ip = comm::ip_address(reinterpret_cast<const sockaddr*>(&anywhere));
  // Only chooses a route; sends nothing.
  const comm::IpAddress source = comm::source_for(ip.value());
  if (source != comm::IpAddress()) return {comm::ip_text(source)};
  std::vector<std::string> all;
  for_own_networks([&](const ifaddrs& network) {
    if ((network.ifa_flags & IFF_RUNNING) != 0) all.push_back(text_of(network.ifa_addr));
  });
  if (all.empty()) all.push_back(host_name());
  return all;
}

std::string own_networks() {
  std::string text;
  for_own_networks([&](const ifaddrs& network) {
    const auto* const mask = reinterpret_cast<const sockaddr_in*>(network.ifa_netmask);
    text += cat(text.empty() ? "" : " ", text_of(network.ifa_addr), "/",
                std::popcount(mask->sin_addr.s_addr));
  });
  return text;
}

}  // namespace shale::models
