#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "shale/base/error.h"
#include "shale/base/parse.h"
#include "shale/models/training/report/prometheus.h"

namespace shale::models {
namespace {

constexpr int kRequestTimeoutMs = 2000;
constexpr size_t kLongestRequest = 8192;

sockaddr_in address_of(const std::string& text) {
  const size_t colon = text.rfind(':');
  const std::string host = colon == text.npos ? "127.0.0.1" : text.substr(0, colon);
  const auto port = parse_int(colon == text.npos ? text : text.substr(colon + 1));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  if (!port || *port < 0 || *port > 65535 ||
      inet_pton(AF_INET, host.c_str(), &address.sin_addr) != 1) {
    throw ConfigError(
        cat("--prometheus-listen: expected PORT or IPV4:PORT, found ", excerpt(text)));
  }
  address.sin_port = htons(static_cast<uint16_t>(*port));
  return address;
}

UnavailableError cannot_listen(const std::string& address, int error) {
  return UnavailableError(cat("--prometheus-listen ", address, ": cannot listen there: ",
                              std::strerror(error), " (errno ", error, ")"));
}

// The first line of a request; empty if it does not come in time.
std::string request_line(int connection) {
  std::string request;
  std::array<char, 1024> buffer{};
  while (request.find("\r\n\r\n") == request.npos && request.size() < kLongestRequest) {
    pollfd ready{.fd = connection, .events = POLLIN, .revents = 0};
    if (poll(&ready, 1, kRequestTimeoutMs) <= 0) return {};
    const ssize_t bytes = recv(connection, buffer.data(), buffer.size(), 0);
    if (bytes <= 0) return {};
    request.append(buffer.data(), static_cast<size_t>(bytes));
  }
  return request.substr(0, request.find("\r\n"));
}

void send_all(int connection, std::string_view text) {
  while (!text.empty()) {
    const ssize_t sent = send(connection, text.data(), text.size(), MSG_NOSIGNAL);
    if (sent <= 0) return;  // who asked has gone
    text.remove_prefix(static_cast<size_t>(sent));
  }
}

std::string response(std::string_view status, std::string_view body) {
  return cat("HTTP/1.1 ", status,
             "\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: ",
             body.size(), "\r\nConnection: close\r\n\r\n", body);
}

}  // namespace

void check_prometheus_address(const std::string& address) {
  static_cast<void>(address_of(address));
}

PrometheusServer::PrometheusServer(const std::string& address) {
  sockaddr_in where = address_of(address);
  listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int yes = 1;
  socklen_t bytes = sizeof(where);
  if (listener_ < 0 || setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) != 0 ||
      bind(listener_, reinterpret_cast<sockaddr*>(&where), bytes) != 0 ||
      listen(listener_, 16) != 0 ||
      getsockname(listener_, reinterpret_cast<sockaddr*>(&where), &bytes) != 0 ||
      pipe(wake_) != 0) {
    const int error = errno;
    if (listener_ >= 0) close(listener_);
    throw cannot_listen(address, error);
  }
  port_ = ntohs(where.sin_port);
  thread_ = std::thread([this] { serve(); });
}

PrometheusServer::~PrometheusServer() {
  close(wake_[1]);
  thread_.join();
  close(wake_[0]);
  close(listener_);
}

void PrometheusServer::update(const RunGauges& gauges) {
  const std::lock_guard lock(mutex_);
  gauges_ = gauges;
}

void PrometheusServer::serve() {
  while (true) {
    std::array<pollfd, 2> ready = {pollfd{.fd = listener_, .events = POLLIN, .revents = 0},
                                   pollfd{.fd = wake_[0], .events = POLLIN, .revents = 0}};
    if (poll(ready.data(), ready.size(), -1) < 0 && errno != EINTR) return;
    if (ready[1].revents != 0) return;
    if ((ready[0].revents & POLLIN) == 0) continue;
    const int connection = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (connection < 0) continue;
    const timeval limit{.tv_sec = kRequestTimeoutMs / 1000, .tv_usec = 0};
    setsockopt(connection, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    answer(connection);
    close(connection);
  }
}

void PrometheusServer::answer(int connection) {
  const std::string line = request_line(connection);
  if (line.empty()) return;
  if (!line.starts_with("GET ")) {
    return send_all(connection, response("405 Method Not Allowed", "expected GET\n"));
  }
  if (!line.starts_with("GET /metrics ") && !line.starts_with("GET / ")) {
    return send_all(connection, response("404 Not Found", "expected /metrics\n"));
  }
  RunGauges gauges;
  {
    const std::lock_guard lock(mutex_);
    gauges = gauges_;
  }
  send_all(connection, response("200 OK", prometheus_text(gauges)));
}

}  // namespace shale::models
