#include "shale/models/views/http_client.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>

#include "shale/base/error.h"
#include "shale/base/parse.h"
#include "shale/base/text.h"

namespace shale::models {
namespace {

constexpr size_t kMostBytes = 16 << 20;

struct Connection {
  int fd = -1;
  Connection() = default;
  ~Connection() {
    if (fd >= 0) close(fd);
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
};

timeval time_of(double seconds) {
  const auto whole = static_cast<time_t>(seconds);
  return {.tv_sec = whole,
          .tv_usec = static_cast<suseconds_t>((seconds - static_cast<double>(whole)) * 1e6)};
}

// The first of the host's addresses that takes a connection.
void connect_to(Connection& connection, const std::string& host, const std::string& port,
                double timeout_s) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int problem = getaddrinfo(host.c_str(), port.c_str(), &wanted, &found);
  if (problem != 0) throw UnavailableError(cat(host, ": ", gai_strerror(problem)));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> list(found, freeaddrinfo);
  const timeval limit = time_of(timeout_s);
  int error = 0;
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    connection.fd = socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, at->ai_protocol);
    if (connection.fd < 0) throw UnavailableError(cat("socket: ", std::strerror(errno)));
    setsockopt(connection.fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));  // of connect, too
    setsockopt(connection.fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    if (connect(connection.fd, at->ai_addr, at->ai_addrlen) == 0) return;
    error = errno;
    close(connection.fd);
    connection.fd = -1;
  }
  throw UnavailableError(cat(host, ":", port, ": ", std::strerror(error)));
}

void send_all(const Connection& connection, std::string_view text) {
  while (!text.empty()) {
    const ssize_t sent = send(connection.fd, text.data(), text.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) throw UnavailableError(cat("cannot send: ", std::strerror(errno)));
    text.remove_prefix(static_cast<size_t>(sent));
  }
}

// Up to the end, as the server was told to close the connection.
std::string receive_all(const Connection& connection, double timeout_s) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(timeout_s);
  std::string text;
  std::array<char, 65536> buffer{};
  while (true) {
    const ssize_t bytes = recv(connection.fd, buffer.data(), buffer.size(), 0);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes == 0) return text;
    if (bytes < 0 || std::chrono::steady_clock::now() > end) {
      throw UnavailableError(cat("no answer within ", timeout_s, " s"));
    }
    text.append(buffer.data(), static_cast<size_t>(bytes));
    if (text.size() > kMostBytes) throw UnavailableError("an answer of more than 16 MiB");
  }
}

// What a body in chunks has (RFC 9112, section 7.1).
std::string without_chunks(std::string_view text) {
  std::string body;
  while (true) {
    const size_t line = text.find("\r\n");
    if (line == text.npos) throw UnavailableError("the answer ends early");
    size_t bytes = 0, digits = 0;
    for (; digits < line && std::isxdigit(static_cast<unsigned char>(text[digits])) != 0;
         ++digits) {
      const char c = text[digits];
      bytes = bytes * 16 + static_cast<size_t>(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
      if (bytes > kMostBytes) throw UnavailableError("an answer of more than 16 MiB");
    }
    if (digits == 0) throw UnavailableError("the answer's chunks have no length");
    if (bytes == 0) return body;
    if (text.size() < line + 2 + bytes + 2) throw UnavailableError("the answer ends early");
    body += text.substr(line + 2, bytes);
    text.remove_prefix(line + 2 + bytes + 2);
  }
}

// The value of a header; empty: it is not there. Names are written in any case.
std::string header_of(std::string_view headers, std::string_view name) {
  while (!headers.empty()) {
    const size_t end = std::min(headers.find("\r\n"), headers.size());
    const std::string_view line = headers.substr(0, end);
    if (line.size() > name.size() && line[name.size()] == ':' &&
        strncasecmp(line.data(), name.data(), name.size()) == 0) {
      const size_t at = line.find_first_not_of(" \t", name.size() + 1);
      return at == line.npos ? std::string() : std::string(line.substr(at));
    }
    headers.remove_prefix(std::min(end + 2, headers.size()));
  }
  return {};
}

HttpAnswer parsed(const std::string& text) {
  const size_t end = text.find("\r\n\r\n");
  if (!text.starts_with("HTTP/1.") || text.size() < 12 || end == text.npos) {
    throw UnavailableError(cat("expected an answer in HTTP, found '", excerpt(text), "'"));
  }
  const auto status = parse_int(text.substr(9, 3));
  if (!status) throw UnavailableError(cat("an answer without a status: '", excerpt(text), "'"));
  const std::string_view headers = std::string_view(text).substr(0, end);
  HttpAnswer answer{.status = static_cast<int>(*status), .body = text.substr(end + 4)};
  if (header_of(headers, "Transfer-Encoding") == "chunked") {
    answer.body = without_chunks(answer.body);
    return answer;
  }
  const auto length = parse_int(header_of(headers, "Content-Length"));
  if (length && *length != static_cast<int64_t>(answer.body.size())) {
    throw UnavailableError(
        cat("the answer has ", answer.body.size(), " bytes, expected ", *length));
  }
  return answer;
}

}  // namespace

HttpClient::HttpClient(std::string url) : url_(std::move(url)) {
  constexpr std::string_view kScheme = "http://";
  const auto refuse = [&](std::string_view why) {
    return ConfigError(cat("'", excerpt(url_), "': expected http://HOST[:PORT]", why));
  };
  if (!url_.starts_with(kScheme)) {
    throw refuse(url_.starts_with("https://") ? "; Shale has no TLS: a proxy or ssh -L has" : "");
  }
  const std::string rest = url_.substr(kScheme.size());
  const std::string place = rest.substr(0, rest.find('/'));
  prefix_ = rest.substr(place.size());
  while (prefix_.ends_with('/')) prefix_.pop_back();
  const size_t colon = place.ends_with(']') ? place.npos : place.rfind(':');
  host_ = place.substr(0, colon);
  if (host_.starts_with('[') && host_.ends_with(']')) host_ = host_.substr(1, host_.size() - 2);
  if (colon != place.npos) port_ = place.substr(colon + 1);
  const auto port = parse_int(port_);
  if (host_.empty() || !port || *port < 1 || *port > 65535) throw refuse("");
  for (const char c : url_) {
    if (c <= ' ' || c == 0x7f) throw refuse(", without blanks");
  }
}

HttpAnswer HttpClient::post(std::string_view path, std::string_view json, double timeout_s) const {
  try {
    Connection connection;
    connect_to(connection, host_, port_, timeout_s);
    send_all(connection, cat("POST ", prefix_, path, " HTTP/1.1\r\nHost: ", host_, ":", port_,
                             "\r\nContent-Type: application/json\r\nContent-Length: ", json.size(),
                             "\r\nConnection: close\r\n\r\n", json));
    return parsed(receive_all(connection, timeout_s));
  } catch (const UnavailableError& error) {
    throw UnavailableError(cat(url_, path, ": ", error.what()));
  }
}

}  // namespace shale::models
