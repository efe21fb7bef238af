#pragma once

#include <string>
#include <string_view>

namespace shale::models {

// What a server answered.
struct HttpAnswer {
  int status = 0;    // 200
  std::string body;  // at most 16 MiB
};

// A server of http://HOST[:PORT][/PREFIX]. A connection is made for each request; nothing is
// encrypted.
class HttpClient {
 public:
  // Throws ConfigError for what is no such address, https:// included.
  explicit HttpClient(std::string url);

  // Posts JSON to PREFIX + `path`. Throws UnavailableError where nobody answers within
  // `timeout_s`, and for an answer that is no HTTP or ends early.
  HttpAnswer post(std::string_view path, std::string_view json, double timeout_s) const;

 private:
  std::string url_, host_, port_ = "80", prefix_;
};

}  // namespace shale::models
