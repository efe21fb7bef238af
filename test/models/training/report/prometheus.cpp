#include "shale/models/training/report/prometheus.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <limits>
#include <thread>
#include <vector>

#include "shale/base/error.h"
#include "shale/base/log.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/temp_dir.h"

namespace shale::models {

using test::contains;
using test::message_of;
using test::TempDir;

namespace {

RunGauges full() {
  return {.run = "a \"b\"\\c\nd",
          .step = StepMetrics{.step = 7, .loss = 3.5f, .items = 1 << 20, .step_ms = 12.5},
          .eval = EvalMetrics{.step = 5, .val_loss = 3.25f, .ms = 2000},
          .ranks = RanksMetrics{.step = 5,
                                .ranks = 2,
                                .figures = {{"device_busy_share",
                                             Spread{.least = 0.5, .median = 0.625, .most = 0.75}},
                                            {"host_peak_bytes", std::nullopt}}}};
}

using Clock = std::chrono::steady_clock;

// Connects to the server and sends these bytes. Returns the socket.
int connect_to(int port, std::string_view request) {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
  REQUIRE(write(socket, request.data(), request.size()) == static_cast<ssize_t>(request.size()));
  return socket;
}

// Returns the server's response to these bytes.
std::string ask(int port, std::string_view request) {
  const int socket = connect_to(port, request);
  std::string answer;
  std::array<char, 4096> buffer{};
  ssize_t bytes = 0;
  while ((bytes = read(socket, buffer.data(), buffer.size())) > 0) {
    answer.append(buffer.data(), static_cast<size_t>(bytes));
  }
  close(socket);
  return answer;
}

}  // namespace

TEST_CASE("metrics have Prometheus' format, in base units, and only what is known",
          "[prometheus]") {
  CHECK(prometheus_text({}).empty());
  const std::string text = prometheus_text(full());
  CHECK(text ==
        "# HELP shale_step Optimizer steps done.\n# TYPE shale_step gauge\n"
        "shale_step{run=\"a \\\"b\\\"\\\\c\\nd\"} 7\n"
        "# HELP shale_loss Mean training loss of the step.\n# TYPE shale_loss gauge\n"
        "shale_loss{run=\"a \\\"b\\\"\\\\c\\nd\"} 3.5\n"
        "# HELP shale_tokens_total Number that all ranks have trained on so far.\n"
        "# TYPE shale_tokens_total counter\n"
        "shale_tokens_total{run=\"a \\\"b\\\"\\\\c\\nd\"} 1048576\n"
        "# HELP shale_step_seconds Time of the step.\n# TYPE shale_step_seconds gauge\n"
        "shale_step_seconds{run=\"a \\\"b\\\"\\\\c\\nd\"} 0.0125\n"
        "# HELP shale_validation_step Steps done at the newest validation.\n"
        "# TYPE shale_validation_step gauge\n"
        "shale_validation_step{run=\"a \\\"b\\\"\\\\c\\nd\"} 5\n"
        "# HELP shale_validation_loss Mean validation loss.\n"
        "# TYPE shale_validation_loss gauge\n"
        "shale_validation_loss{run=\"a \\\"b\\\"\\\\c\\nd\"} 3.25\n"
        "# HELP shale_validation_seconds Time of the validation.\n"
        "# TYPE shale_validation_seconds gauge\n"
        "shale_validation_seconds{run=\"a \\\"b\\\"\\\\c\\nd\"} 2\n"
        "# HELP shale_ranks Ranks of the run.\n# TYPE shale_ranks gauge\n"
        "shale_ranks{run=\"a \\\"b\\\"\\\\c\\nd\"} 2\n"
        "# HELP shale_rank_device_busy_share Minimum, median and maximum of all ranks since the "
        "previous report.\n"
        "# TYPE shale_rank_device_busy_share gauge\n"
        "shale_rank_device_busy_share{run=\"a \\\"b\\\"\\\\c\\nd\",of=\"min\"} 0.5\n"
        "shale_rank_device_busy_share{run=\"a \\\"b\\\"\\\\c\\nd\",of=\"median\"} 0.625\n"
        "shale_rank_device_busy_share{run=\"a \\\"b\\\"\\\\c\\nd\",of=\"max\"} 0.75\n");
}

TEST_CASE("what is not finite has Prometheus' words", "[prometheus]") {
  const auto loss = [](float value) {
    return prometheus_text({.run = "r", .step = StepMetrics{.step = 1, .loss = value}});
  };
  constexpr float kInf = std::numeric_limits<float>::infinity();
  CHECK(contains(loss(std::numeric_limits<float>::quiet_NaN()), "shale_loss{run=\"r\"} NaN\n"));
  CHECK(contains(loss(kInf), "} +Inf\n"));
  CHECK(contains(loss(-kInf), "} -Inf\n"));
}

TEST_CASE("the file is whole, replaced now and then, and leaves nothing beside it",
          "[prometheus]") {
  const TempDir dir;
  const std::string path = dir.file("shale.prom");
  PrometheusFile file(path);
  RunGauges gauges = full();
  file.update(gauges);
  const std::string first = test::read_file(path);
  CHECK(first == prometheus_text(gauges));
  gauges.step->step = 8;
  file.update(gauges);  // the last write is too recent, so this writes nothing
  CHECK(test::read_file(path) == first);
  file.update(gauges, true);
  CHECK(test::read_file(path) == prometheus_text(gauges));
  CHECK(std::distance(std::filesystem::directory_iterator(dir.path()), {}) == 1);
}

TEST_CASE("a file that cannot be written is one warning", "[prometheus]") {
  const TempDir dir;
  const std::string path = dir.file("absent/shale.prom"), log = dir.file("log");
  FILE* const err = std::fopen(log.c_str(), "w");
  set_process_log({.err = err});
  PrometheusFile file(path);
  file.update(full());
  file.update(full(), true);
  set_process_log({});
  std::fclose(err);
  const std::string text = test::read_file(log);
  CHECK(contains(text, path + ": cannot be written: No such file"));
  CHECK(text.find("cannot be written") == text.rfind("cannot be written"));
}

TEST_CASE("the server answers with the newest metrics, and refuses the rest", "[prometheus]") {
  PrometheusServer server("0");
  const std::string get = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
  CHECK(contains(ask(server.port(), get), "Content-Length: 0\r\n"));
  const RunGauges gauges = full();
  server.update(gauges);
  const std::string answer = ask(server.port(), get);
  CHECK(answer.starts_with("HTTP/1.1 200 OK\r\n"));
  CHECK(contains(answer, "Content-Type: text/plain; version=0.0.4"));
  CHECK(answer.ends_with("\r\n\r\n" + prometheus_text(gauges)));
  CHECK(contains(ask(server.port(), "GET /etc HTTP/1.1\r\n\r\n"), "404 Not Found"));
  CHECK(contains(ask(server.port(), "POST /metrics HTTP/1.1\r\n\r\n"), "405 Method"));
  const std::string head = ask(server.port(), "HEAD /metrics HTTP/1.1\r\n\r\n");
  CHECK(head == answer.substr(0, answer.find("\r\n\r\n") + 4));
}

TEST_CASE("clients that are slow or silent keep neither others out nor the server from ending",
          "[prometheus]") {
  const std::string get = "GET /metrics HTTP/1.1\r\n\r\n";
  std::vector<int> slow;
  const auto start = Clock::now();
  {
    PrometheusServer server("0");
    for (int i = 0; i < 19; ++i) slow.push_back(connect_to(server.port(), i % 2 ? "G" : ""));
    CHECK(contains(ask(server.port(), get), "200 OK"));
    CHECK(Clock::now() - start < std::chrono::seconds(1));
  }
  CHECK(Clock::now() - start < std::chrono::seconds(1));
  for (const int socket : slow) close(socket);
}

TEST_CASE("a client that sends a byte now and then has two seconds for its request",
          "[prometheus]") {
  PrometheusServer server("0");
  const auto start = Clock::now();
  const int socket = connect_to(server.port(), "G");
  char byte = 0;
  while (recv(socket, &byte, 1, MSG_DONTWAIT) != 0 &&
         Clock::now() - start < std::chrono::seconds(5)) {
    static_cast<void>(send(socket, "E", 1, MSG_NOSIGNAL));
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  CHECK(Clock::now() - start >= std::chrono::milliseconds(1900));
  CHECK(Clock::now() - start < std::chrono::seconds(4));
  close(socket);
}

TEST_CASE("a server without descriptors waits for one instead of asking in a loop",
          "[prometheus]") {
  PrometheusServer server("0");
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(server.port()));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  const rlimit none{.rlim_cur = 3, .rlim_max = before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_NOFILE, &none) == 0);
  const std::clock_t processor = std::clock();
  const int connected = connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof(address));
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  const double busy_s = static_cast<double>(std::clock() - processor) / CLOCKS_PER_SEC;
  REQUIRE(setrlimit(RLIMIT_NOFILE, &before) == 0);
  CHECK(connected == 0);
  CHECK(busy_s < 0.1);
  close(socket);
  CHECK(contains(ask(server.port(), "GET / HTTP/1.1\r\n\r\n"), "200 OK"));
}

TEST_CASE("the loopback interface answers its own names alone", "[prometheus]") {
  PrometheusServer server("0");
  const auto status = [&](const std::string& header) {
    return ask(server.port(), "GET /metrics HTTP/1.1\r\nAccept: */*\r\n" + header + "\r\n")
        .substr(9, 3);
  };
  CHECK(status("") == "200");
  CHECK(status("Host: localhost:9400\r\n") == "200");
  CHECK(status("HOST:127.0.0.1\r\n") == "200");
  CHECK(status("Host: evil.example:9400\r\n") == "403");
  PrometheusServer everywhere("0.0.0.0:0");  // accepts connections from every host
  CHECK(contains(ask(everywhere.port(), "GET / HTTP/1.1\r\nHost: node7:9400\r\n\r\n"), "200 OK"));
}

TEST_CASE("an address that is none, or that is taken, is an error", "[prometheus]") {
  for (const char* const address : {"x", "65536", "-1", "localhost:80", "1.2.3:80", "1.2.3.4:"}) {
    CAPTURE(address);
    CHECK(contains(message_of<ConfigError>([&] { is_prometheus_file(address); }),
                   "expected NAME.prom, PORT or IPV4:PORT"));
  }
  CHECK(is_prometheus_file("folder/node.prom"));
  CHECK(!is_prometheus_file("9400"));
  CHECK_THROWS_AS(is_prometheus_file("folder/node.txt"), ConfigError);
  const PrometheusServer server("127.0.0.1:0");
  CHECK(contains(
      message_of<UnavailableError>([&] { PrometheusServer{std::to_string(server.port())}; }),
      "cannot listen on"));
}

TEST_CASE("a row costs the file and the server less than 0.2 ms of processor time",
          "[prometheus]") {
  const TempDir dir;
  PrometheusFile file(dir.file("shale.prom"));
  PrometheusServer server("0");
  const RunGauges gauges = full();
  constexpr int kRows = 2000;
  const std::clock_t start = std::clock();
  for (int i = 0; i < kRows; ++i) {
    file.update(gauges);
    server.update(gauges);
  }
  const double ms = 1e3 * static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC / kRows;
  INFO(ms << " ms a row");
  CHECK(ms < 0.2);
}

}  // namespace shale::models
