#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

namespace shale::models {

// Serves GET and HEAD over HTTP, on a thread that sleeps between requests. A client has two seconds
// for its request. Other clients and the destructor do not wait for it. On the loopback interface,
// the server refuses requests whose Host header is a name other than localhost (no header and IPv4
// addresses are accepted), so that pages of other sites cannot read the answers through a browser.
class HttpServer {
 public:
  struct Page {
    std::string_view type;  // for example "text/html; charset=utf-8"
    std::string body;
  };
  // Returns the page at a path such as "/metrics", nullopt if there is none. Called on the server's
  // thread.
  using Pages = std::function<std::optional<Page>(std::string_view path)>;

  // `address`: "PORT" on the loopback interface, or "IPV4:PORT"; port 0 chooses a free one. Throws
  // ConfigError for another text, UnavailableError if it cannot listen.
  HttpServer(const std::string& address, Pages pages);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const { return port_; }

 private:
  void serve();
  std::string answer(std::string_view request) const;

  const Pages pages_;
  int listener_ = -1;
  int wake_[2] = {-1, -1};  // pipe; closing its write end ends the thread
  int port_ = 0;
  bool serves_loopback_ = false;
  std::thread thread_;
};

bool is_http_address(const std::string& text);

}  // namespace shale::models
