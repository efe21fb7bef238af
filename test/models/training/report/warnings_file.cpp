#include "shale/models/training/report/warnings_file.h"
#include "shale/test/support/json.h"

#include <sstream>

#include "shale/test/support/catch.h"
#include "shale/test/support/temp_dir.h"

namespace shale::models {
namespace {

std::vector<Json> lines_of(const std::string& text) {
  std::vector<Json> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);)
    lines.push_back(Json::parse(line, {}, "line"));
  return lines;
}

// Redirects the log to a file during its lifetime.
struct SilentLog {
  std::unique_ptr<FILE, int (*)(FILE*)> file{std::tmpfile(), std::fclose};
  SilentLog() { set_process_log({.err = file.get()}); }
  ~SilentLog() { set_process_log({}); }
};

}  // namespace

TEST_CASE("what was said before the file was there is in it, then all that is said") {
  const test::TempDir dir;
  const SilentLog silent;
  {
    WarningsFile file(3);
    log_warning("early, with \"quotes\" and a byte \xff");
    file.open(dir.file("warnings.jsonl"));
    log_error("later");
    log_info("this is none");
    file.write(LogLevel::kError, "the end");
  }
  log_warning("nobody listens");
  const auto lines = lines_of(test::read_file(dir.file("warnings.jsonl")));
  REQUIRE(lines.size() == 3);
  CHECK(lines[0]["level"] == "warning");
  CHECK(test::contains(lines[0]["text"].get<std::string>(), "early, with \"quotes\""));
  CHECK(lines[1]["level"] == "error");
  CHECK(lines[1]["text"] == "later");
  CHECK(lines[2]["text"] == "the end");
  for (const auto& line : lines) {
    CHECK(line["rank"] == 3);
    CHECK_FALSE(line["host"].get<std::string>().empty());
    const std::string& time = line["time"].text();
    CHECK(time.size() == std::string("2026-11-23T00:24:55.123Z").size());
    CHECK(time.back() == 'Z');
    CHECK(time >= lines[0]["time"].get<std::string>());
  }
}

TEST_CASE("without a warning there is no file, and a folder that comes later is not too late") {
  const test::TempDir dir;
  const SilentLog silent;
  WarningsFile file(0);
  file.open(dir.file("out/warnings.jsonl"));
  CHECK_FALSE(std::filesystem::exists(dir.file("out")));
  log_warning("one");
  std::filesystem::create_directory(dir.file("out"));
  log_warning("two");
  CHECK(lines_of(test::read_file(dir.file("out/warnings.jsonl"))).size() == 2);
}

TEST_CASE("a rank that warns without end writes a line a second, and says how many it left out") {
  const test::TempDir dir;
  const SilentLog silent;
  double now_s = 100;
  {
    WarningsFile file(0, [&now_s] { return now_s; });
    file.open(dir.file("warnings.jsonl"));
    for (int i = 0; i < 1000; ++i) log_warning("again ", i);
    CHECK(lines_of(test::read_file(dir.file("warnings.jsonl"))).size() == 60);
    log_error("an error");
    now_s += 2;
    for (int i = 0; i < 10; ++i) log_warning("later ", i);
  }
  const auto lines = lines_of(test::read_file(dir.file("warnings.jsonl")));
  REQUIRE(lines.size() == 60 + 2 + 2 + 1);
  const auto text = [&](size_t i) { return lines[i]["text"].get<std::string>(); };
  CHECK(text(59) == "again 59");
  CHECK(test::contains(text(60), "940 warnings were left out"));
  CHECK(text(61) == "an error");
  CHECK(text(63) == "later 1");
  CHECK(test::contains(text(64), "8 warnings were left out"));
}

}  // namespace shale::models
