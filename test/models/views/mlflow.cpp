#include "shale/models/views/mlflow.h"
#include "shale/test/support/json.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <tuple>
#include <vector>

#include "shale/base/error.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/temp_dir.h"

namespace shale::models {
namespace {

// Keeps runs as MLflow does, by its limits (mlflow/utils/validation.py): 1000 metrics, 100 params
// and 100 tags a request, 1 MB of it, params that do not change; equal metrics are kept once. Of
// the answers whose turn is in `failures` something goes wrong.
class MlflowStandIn {
 public:
  enum class Failure { kNone, kServerFails, kNoAnswer, kAnswerIsLost, kNoJson };

  MlflowStandIn() {
    listener_ = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{.sin_family = AF_INET};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof(address);
    REQUIRE(bind(listener_, reinterpret_cast<sockaddr*>(&address), bytes) == 0);
    REQUIRE(listen(listener_, 8) == 0);
    getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &bytes);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { serve(); });
  }
  ~MlflowStandIn() {
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    close(listener_);
  }
  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }

  std::map<int, Failure> failures;  // by request, from 0
  // Of the one run that there is.
  Json created;
  std::map<std::string, std::string> params;
  std::set<std::tuple<std::string, int64_t, double, int64_t>> metrics;  // key, step, value, time
  std::vector<size_t> batches;                                          // metrics of each
  std::string status = "RUNNING";
  std::vector<std::string> complaints;
  int requests = 0, runs = 0;

 private:
  void serve() {
    for (int fd; (fd = accept(listener_, nullptr, nullptr)) >= 0; close(fd)) answer(fd);
  }

  static std::string request(int fd) {
    std::string text;
    std::array<char, 65536> buffer{};
    size_t want = std::string::npos;
    while (text.size() < want) {
      const ssize_t bytes = recv(fd, buffer.data(), buffer.size(), 0);
      if (bytes <= 0) break;
      text.append(buffer.data(), static_cast<size_t>(bytes));
      const size_t end = text.find("\r\n\r\n"), length = text.find("Content-Length: ");
      if (end != text.npos && length != text.npos)
        want = end + 4 + std::stoul(text.substr(length + 16));
    }
    return text;
  }

  void answer(int fd) {
    const std::string text = request(fd);
    const auto found = failures.find(requests++);
    const Failure failure = found == failures.end() ? Failure::kNone : found->second;
    if (failure == Failure::kNoAnswer) return;
    std::string reply = R"({"error_code": "INTERNAL_ERROR"})";
    int code = 500;
    if (failure != Failure::kServerFails) std::tie(code, reply) = handle(text);
    if (failure == Failure::kAnswerIsLost) return;
    if (failure == Failure::kNoJson) reply = "<html>a proxy's page</html>";
    // In chunks, as some servers answer.
    std::array<char, 16> size{};
    std::snprintf(size.data(), size.size(), "%zx", reply.size());
    const std::string all = "HTTP/1.1 " + std::to_string(code) +
                            " words\r\nContent-Type: application/json\r\n"
                            "transfer-encoding: chunked\r\n\r\n" +
                            size.data() + "\r\n" + reply + "\r\n0\r\n\r\n";
    CHECK(send(fd, all.data(), all.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(all.size()));
  }

  std::pair<int, std::string> refuse(const std::string& why) {
    complaints.push_back(why);
    return {400, Json{{"error_code", "INVALID_PARAMETER_VALUE"}, {"message", why}}.dump()};
  }

  std::pair<int, std::string> handle(const std::string& text) {
    const Json body = Json::parse(text.substr(text.find("\r\n\r\n") + 4), {}, "request");
    if (!body.is_object()) return refuse("no object");
    if (text.size() > 1000000) return refuse("a request of more than 1 MB");
    const std::string path = text.substr(5, text.find(' ', 5) - 5);
    if (path == "/api/2.0/mlflow/runs/create") {
      created = body;
      if (body["experiment_id"] == "9")
        return {404, R"({"error_code": "RESOURCE_DOES_NOT_EXIST"})"};
      ++runs;
      return {200, R"({"run": {"info": {"run_id": "abc"}, "data": {}}})"};
    }
    if (!body.contains("run_id") || body["run_id"] != "abc") return refuse("another run");
    if (path == "/api/2.0/mlflow/runs/update") {
      status = body["status"].text();
      return {200, "{}"};
    }
    if (path != "/api/2.0/mlflow/runs/log-batch") return refuse("no such path: " + path);
    return log(body);
  }

  std::pair<int, std::string> log(const Json& body) {
    const auto list = [&body](const char* key) {
      return body.contains(key) ? body[key] : Json::array();
    };
    const Json some = list("metrics"), names = list("params");
    if (some.size() > 1000 || names.size() > 100) return refuse("too many in a batch");
    if (some.empty() && names.empty()) return refuse("nothing in a batch");
    for (const Json& param : names) {
      const std::string& value = param["value"].text();
      if (value.size() > 6000) return refuse("a long param");
      const auto [at, is_new] = params.try_emplace(param["key"].text(), value);
      if (!is_new && at->second != value) return refuse("a param that changes");
    }
    for (const Json& metric : some) {
      metrics.emplace(metric["key"].text(), metric["step"].integer(), metric["value"].real(),
                      metric["timestamp"].integer());
    }
    if (!some.empty()) batches.push_back(some.size());
    return {200, "{}"};
  }

  int listener_ = -1, port_ = 0;
  std::thread thread_;
};

void write_file(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path) << text;
}

std::string rows(int64_t first, int64_t last) {
  std::string text;
  for (int64_t step = first; step <= last; ++step) {
    const std::string at = std::to_string(step);
    text += "{\"step\": " + at + ", \"loss\": " + at + ".5, \"loss_bits\": \"40a00000\", " +
            "\"grad_norm\": null, \"step_ms\": 10.0}\n";
    if (step % 10 == 0) text += "{\"step\": " + at + ", \"val_loss\": 3.25, \"val_ms\": 7}\n";
  }
  return text;
}

// A folder of a run of so many steps, with 150 options.
void make_run(const std::filesystem::path& out, int64_t steps, const std::string& state) {
  write_file(out / "metrics.jsonl", rows(1, steps));
  Json options = {{"data", std::string(7000, 'x')}};
  for (int i = 1; i < 150; ++i) options["option_" + std::to_string(i)] = i;
  write_file(out / "config.json", options.dump());
  write_file(out / "status.json", R"({"state": ")" + state +
                                      R"(", "step": 1, "checkpoint_step": null, "checkpoint": "", )"
                                      R"("exit_code": null, "message": ""})");
}

constexpr double kNoPause = 0.001;

}  // namespace

TEST_CASE("a run is sent to MLflow in batches of its limits") {
  test::TempDir out;
  make_run(out.path(), 1200, "done");
  MlflowStandIn server;
  const ReplayResult sent = replay_to_mlflow(out.path(), HttpClient(server.url()), {});
  CHECK(server.complaints.empty());
  CHECK(sent.run_id == "abc");
  CHECK(sent.rows == 1320);
  CHECK(sent.metrics == 1200 * 2 + 120 * 2);
  CHECK(sent.ended);
  CHECK(server.runs == 1);
  CHECK(server.created["experiment_id"] == "0");
  CHECK(server.params.size() == 150);
  CHECK(server.params["option_7"] == "7");
  CHECK(server.params["data"].size() == 6000);
  CHECK(server.metrics.size() == 2640);
  CHECK(server.batches == std::vector<size_t>{1000, 1000, 640});
  CHECK(server.status == "FINISHED");
  // Times are those of the steps: 10 ms each from the start.
  const int64_t start = server.created["start_time"].integer();
  CHECK(server.metrics.contains({"loss", 1, 1.5, start + 10}));
  CHECK(server.metrics.contains({"val_loss", 1200, 3.25, start + 12000}));
}

TEST_CASE("a later replay goes on, without doubles, also after a resume") {
  test::TempDir out;
  make_run(out.path(), 100, "running");
  MlflowStandIn server;
  CHECK_FALSE(replay_to_mlflow(out.path(), HttpClient(server.url()), {}).ended);
  CHECK(server.status == "RUNNING");
  const size_t before = server.metrics.size();
  CHECK(replay_to_mlflow(out.path(), HttpClient(server.url()), {}).rows == 0);
  CHECK(server.metrics.size() == before);

  // Killed, resumed from step 60, and now at 95: what is there is not sent again.
  write_file(out.path() / "metrics.jsonl", rows(1, 95));
  CHECK(replay_to_mlflow(out.path(), HttpClient(server.url()), {}).rows == 0);
  make_run(out.path(), 130, "failed");
  CHECK(replay_to_mlflow(out.path(), HttpClient(server.url()), {}).rows == 33);
  CHECK(server.metrics.size() == 130 * 2 + 13 * 2);
  CHECK(server.status == "FAILED");
  CHECK(server.runs == 1);
  CHECK(server.complaints.empty());
  CHECK_THROWS_AS(replay_to_mlflow(out.path(), HttpClient(server.url()), {.experiment = "2"}),
                  ConfigError);
}

TEST_CASE("a server that fails is asked again, and an answer that is lost makes no doubles") {
  using Failure = MlflowStandIn::Failure;
  test::TempDir out;
  make_run(out.path(), 1200, "done");
  MlflowStandIn server;
  const ReplayOptions options{.tries = 3, .first_pause_s = kNoPause};
  server.failures = {{0, Failure::kServerFails},
                     {2, Failure::kNoAnswer},
                     {5, Failure::kAnswerIsLost},
                     {7, Failure::kServerFails}};
  replay_to_mlflow(out.path(), HttpClient(server.url()), options);
  CHECK(server.metrics.size() == 2640);
  CHECK(server.batches.size() == 4);  // one came twice
  CHECK(server.params.size() == 150);
  CHECK(server.runs == 1);
}

TEST_CASE("a replay that was stopped goes on where it was") {
  using Failure = MlflowStandIn::Failure;
  test::TempDir out;
  make_run(out.path(), 1200, "done");
  MlflowStandIn server;
  const ReplayOptions options{.tries = 2, .first_pause_s = kNoPause};
  server.failures = {{4, Failure::kServerFails}, {5, Failure::kServerFails}};
  CHECK_THROWS_AS(replay_to_mlflow(out.path(), HttpClient(server.url()), options),
                  UnavailableError);
  CHECK(server.batches.size() == 1);
  CHECK(replay_to_mlflow(out.path(), HttpClient(server.url()), options).rows < 900);
  CHECK(server.metrics.size() == 2640);
  CHECK(server.batches.size() == 3);
  CHECK(server.runs == 1);
}

TEST_CASE("a replay takes no step and no time that an int64 cannot hold") {
  test::TempDir out;
  make_run(out.path(), 1, "running");
  MlflowStandIn server;
  for (const char* const step : {"-1", "9223372036854775808", "1.5", "null"}) {
    CAPTURE(step);
    write_file(out.path() / "metrics.jsonl", cat("{\"step\": ", step, ", \"loss\": 1}\n"));
    CHECK_THROWS_AS(replay_to_mlflow(out.path(), HttpClient(server.url()), {}), DataError);
  }
  write_file(out.path() / "metrics.jsonl",
             "{\"step\": 1, \"step_ms\": 1e308}\n{\"step\": 2, \"step_ms\": 1e308}\n");
  CHECK(replay_to_mlflow(out.path(), HttpClient(server.url()), {}).rows == 2);
  const int64_t start = server.created["start_time"].integer();
  CHECK(server.metrics.contains({"step_ms", 2, 1e308, start + (int64_t{1} << 50)}));
}

TEST_CASE("what MLflow refuses is an error with its words, and nobody there another") {
  test::TempDir out;
  make_run(out.path(), 10, "done");
  const ReplayOptions options{.experiment = "9", .tries = 2, .first_pause_s = kNoPause};
  {
    MlflowStandIn server;
    const std::string said = test::message_of<ConfigError>(
        [&] { replay_to_mlflow(out.path(), HttpClient(server.url()), options); });
    CHECK(test::contains(said, "404"));
    CHECK(test::contains(said, "RESOURCE_DOES_NOT_EXIST"));
    CHECK(server.requests == 1);
    server.failures = {{1, MlflowStandIn::Failure::kNoJson}};
    CHECK_THROWS_AS(replay_to_mlflow(out.path(), HttpClient(server.url()), {}), DataError);
  }
  CHECK_THROWS_AS(replay_to_mlflow(out.path(), HttpClient("http://127.0.0.1:1"), options),
                  UnavailableError);
  for (const char* url :
       {"https://a.org", "localhost:5000", "http://", "http://a:x", "http://a:0", "http://a b"}) {
    CAPTURE(url);
    CHECK_THROWS_AS(HttpClient(url), ConfigError);
  }
}

}  // namespace shale::models
