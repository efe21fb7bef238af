#include "shale/models/training/report/http_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <list>
#include <string_view>
#include <vector>

#include "shale/base/error.h"
#include "shale/base/parse.h"

namespace shale::models {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kRequestTime{2};  // maximum time from connection to end of request
constexpr std::chrono::seconds kAnswerTime{30};  // maximum time for sending the answer
constexpr std::chrono::milliseconds kAcceptPause{100};  // pause after accept() failed
constexpr size_t kMostClients = 64;
constexpr size_t kLongestRequest = 8192;

// Parses "PORT" or "IPV4:PORT"; nullopt: the text is neither.
std::optional<sockaddr_in> address_of(const std::string& text) {
  const size_t colon = text.rfind(':');
  const std::string host = colon == text.npos ? "127.0.0.1" : text.substr(0, colon);
  const auto port = parse_int(colon == text.npos ? text : text.substr(colon + 1));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  if (!port || *port < 0 || *port > 65535 ||
      inet_pton(AF_INET, host.c_str(), &address.sin_addr) != 1) {
    return std::nullopt;
  }
  address.sin_port = htons(static_cast<uint16_t>(*port));
  return address;
}

std::string response(std::string_view status, std::string_view body,
                     std::string_view type = "text/plain; charset=utf-8") {
  return cat("HTTP/1.1 ", status, "\r\nContent-Type: ", type, "\r\nContent-Length: ", body.size(),
             "\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff",
             "\r\nConnection: close\r\n\r\n", body);
}

// Returns the header `Host` without the port; empty if there is none.
std::string host_of(std::string_view request) {
  while (true) {
    const size_t end = request.find("\r\n");
    if (end == request.npos) return {};
    request.remove_prefix(end + 2);
    std::string line(request.substr(0, request.find("\r\n")));
    std::ranges::transform(line, line.begin(), [](unsigned char c) { return std::tolower(c); });
    if (!line.starts_with("host:")) continue;
    const size_t begin = line.find_first_not_of(" \t", 5);
    return begin == line.npos ? std::string() : line.substr(begin, line.find(':', begin) - begin);
  }
}

bool is_loopback_name(const std::string& host) {
  in_addr address{};
  return host.empty() || host == "localhost" || inet_pton(AF_INET, host.c_str(), &address) == 1;
}

// Connected client. Its methods never block; poll() tells when to call them.
class Client {
 public:
  explicit Client(int socket) : socket_(socket), deadline_(Clock::now() + kRequestTime) {}
  ~Client() { close(socket_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  Clock::time_point deadline() const { return deadline_; }
  pollfd waits_for() const {
    return {.fd = socket_,
            .events = static_cast<int16_t>(answer_.empty() ? POLLIN : POLLOUT),
            .revents = 0};
  }
  // Reads or writes what is possible without blocking. Calls `answer` when the request is complete.
  // Returns false if the client is done or disconnected.
  template <typename Answer>
  bool go_on(const Answer& answer) {
    if (!answer_.empty()) return send_more();
    std::array<char, 1024> buffer{};
    const ssize_t bytes = recv(socket_, buffer.data(), buffer.size(), 0);
    if (bytes <= 0) return bytes < 0 && (errno == EAGAIN || errno == EINTR);
    request_.append(buffer.data(), static_cast<size_t>(bytes));
    const bool is_whole = request_.find("\r\n\r\n") != request_.npos;
    if (!is_whole && request_.size() < kLongestRequest) return true;
    answer_ = answer(request_);
    deadline_ = Clock::now() + kAnswerTime;
    return send_more();
  }

 private:
  bool send_more() {
    const auto left = std::string_view(answer_).substr(sent_);
    const ssize_t sent = send(socket_, left.data(), left.size(), MSG_NOSIGNAL);
    if (sent < 0) return errno == EAGAIN || errno == EINTR;
    sent_ += static_cast<size_t>(sent);
    return sent_ < answer_.size();
  }

  const int socket_;
  Clock::time_point deadline_;
  std::string request_, answer_;
  size_t sent_ = 0;  // bytes of the answer that have been sent
};

}  // namespace

bool is_http_address(const std::string& text) {
  return address_of(text).has_value();
}

HttpServer::HttpServer(const std::string& address, Pages pages) : pages_(std::move(pages)) {
  const auto parsed = address_of(address);
  if (!parsed) {
    throw ConfigError(cat("expected PORT or IPV4:PORT, found ", excerpt(address)));
  }
  sockaddr_in where = *parsed;
  serves_loopback_ = (ntohl(where.sin_addr.s_addr) >> 24) == 127;
  listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const int yes = 1;
  socklen_t bytes = sizeof(where);
  if (listener_ < 0 || setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) != 0 ||
      bind(listener_, reinterpret_cast<sockaddr*>(&where), bytes) != 0 ||
      listen(listener_, SOMAXCONN) != 0 ||
      getsockname(listener_, reinterpret_cast<sockaddr*>(&where), &bytes) != 0 ||
      pipe(wake_) != 0) {
    const int error = errno;
    if (listener_ >= 0) close(listener_);
    throw UnavailableError(cat("cannot listen on ", address, ": ", std::strerror(error), " (errno ",
                               error, "); use another port"));
  }
  port_ = ntohs(where.sin_port);
  thread_ = std::thread([this] { serve(); });
}

HttpServer::~HttpServer() {
  close(wake_[1]);
  thread_.join();
  close(wake_[0]);
  close(listener_);
}

void HttpServer::serve() {
  std::list<Client> clients;
  Clock::time_point pause_ends{};  // no connection is accepted before this time
  while (true) {
    const auto now = Clock::now();
    clients.remove_if([now](const Client& client) { return client.deadline() <= now; });
    const bool pauses = now < pause_ends, takes = !pauses && clients.size() < kMostClients;
    std::vector<pollfd> ready = {
        {.fd = wake_[0], .events = POLLIN, .revents = 0},
        {.fd = takes ? listener_ : -1, .events = POLLIN, .revents = 0}};  // poll() skips -1
    auto wakes = pauses ? pause_ends : Clock::time_point::max();
    for (const Client& client : clients) {
      ready.push_back(client.waits_for());
      wakes = std::min(wakes, client.deadline());
    }
    using Milliseconds = std::chrono::milliseconds;
    const bool waits_for_ever = wakes == Clock::time_point::max();
    const auto wait_ms = waits_for_ever ? -1 : std::chrono::ceil<Milliseconds>(wakes - now).count();
    if (poll(ready.data(), ready.size(), static_cast<int>(wait_ms)) < 0) {
      if (errno == EINTR) continue;
      return;
    }
    if (ready[0].revents != 0) return;
    size_t i = 2;
    clients.remove_if([&](Client& client) {
      return ready[i++].revents != 0 &&
             !client.go_on([this](std::string_view request) { return answer(request); });
    });
    if (ready[1].revents == 0) continue;
    const int socket = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (socket >= 0) {
      clients.emplace_back(socket);
    } else if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
      // No file descriptor is free; a pause avoids a busy loop.
      pause_ends = Clock::now() + kAcceptPause;
    }
  }
}

std::string HttpServer::answer(std::string_view request) const {
  std::string_view line = request.substr(0, request.find("\r\n"));
  const bool is_head = line.starts_with("HEAD ");
  if (!is_head && !line.starts_with("GET ")) {
    return response("405 Method Not Allowed", "expected GET or HEAD\n");
  }
  std::string whole;
  if (serves_loopback_ && !is_loopback_name(host_of(request))) {
    // Prevents DNS rebinding: a page of another site may use a name that resolves to this host.
    whole = response("403 Forbidden", "expected the Host localhost, or an IPv4 address\n");
  } else {
    line.remove_prefix(line.find(' ') + 1);
    const std::optional<Page> page = pages_(line.substr(0, line.find(' ')));
    whole = page ? response("200 OK", page->body, page->type)
                 : response("404 Not Found", "there is no such page\n");
  }
  return is_head ? whole.substr(0, whole.find("\r\n\r\n") + 4) : whole;
}

}  // namespace shale::models
