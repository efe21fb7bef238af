#pragma once

#include <string>
#include <vector>

namespace shale::models {

struct HostPort {
  std::string host;  // empty: none given
  int port = 0;
};

// Parses "host:port", ":port", "1.2.3.4:5" and "[::1]:5". Throws ConfigError, whose message begins
// with `what`.
HostPort parse_host_port(const std::string& what, const std::string& text);

// Listens on all addresses of the host name, or of this host. Returns one socket, which takes IPv6
// and IPv4 where the system supports both. Throws UnavailableError.
int listen_on(const HostPort& at);
// Connects to the first address of the host that answers within `timeout_s`. Returns -1 and sets
// `why` if there is none.
int connect_to(const HostPort& there, double timeout_s, std::string& why);
// Listens on, or connects to, a socket in the file system. Throws UnavailableError.
int file_socket(const std::string& path, bool listens);

// peer_address() returns the address of the other end of a connection, local_address() that of this
// end, such as "10.0.0.2".
std::string peer_address(int socket);
std::string local_address(int socket);
// Returns the address with which this host reaches the Internet. If it cannot, returns its IPv4
// addresses on networks that are up or, if there are none, its name.
std::vector<std::string> own_addresses();
// Returns the IPv4 addresses of this host with their prefixes: "10.0.0.2/24 172.17.0.1/16".
std::string own_networks();

}  // namespace shale::models
