#include "shale/base/log.h"

#include <memory>
#include <thread>
#include <vector>

#include "shale/test/support/catch.h"

namespace shale {
namespace {

// A logger with its two output files.
struct Capture {
  std::unique_ptr<FILE, int (*)(FILE*)> out{std::tmpfile(), std::fclose};
  std::unique_ptr<FILE, int (*)(FILE*)> err{std::tmpfile(), std::fclose};

  LogOptions options(int rank = 0) const {
    return {.rank = rank, .out = out.get(), .err = err.get()};
  }
  static std::string text(FILE* file) {
    std::string text(static_cast<size_t>(std::ftell(file)), '\0');
    std::rewind(file);
    const size_t count = std::fread(text.data(), 1, text.size(), file);
    REQUIRE(count == text.size());
    return text;
  }
};

void print_all(Logger& log) {
  log.debug("a");
  log.info("b");
  log.warning("c");
  log.error("d");
}

}  // namespace

TEST_CASE("rank 0 prints info to one file, warnings and errors to the other", "[log]") {
  const Capture capture;
  Logger log(capture.options());
  print_all(log);
  CHECK(Capture::text(capture.out.get()) == "b\n");
  CHECK(Capture::text(capture.err.get()) == "warning: c\nerror: d\n");
}

TEST_CASE("other ranks print warnings and errors only, with their rank", "[log]") {
  const Capture capture;
  Logger log(capture.options(2));
  print_all(log);
  CHECK(Capture::text(capture.out.get()).empty());
  CHECK(Capture::text(capture.err.get()) == "[rank 2] warning: c\n[rank 2] error: d\n");
}

TEST_CASE("quiet leaves warnings and errors", "[log]") {
  const Capture capture;
  LogOptions options = capture.options();
  options.quiet = true;
  Logger log(options);
  print_all(log);
  CHECK(Capture::text(capture.out.get()).empty());
  CHECK(Capture::text(capture.err.get()) == "warning: c\nerror: d\n");
  CHECK_FALSE(log.enabled(LogLevel::kInfo));
  CHECK(log.enabled(LogLevel::kWarning));
}

TEST_CASE("a logger keeps its rank when it is configured anew", "[log]") {
  const Capture capture;
  Logger log(capture.options());
  CHECK(log.set_rank(2) == 0);
  CHECK(log.set_rank(3) == 2);
  log.configure({.out = capture.out.get(), .err = capture.err.get()});
  print_all(log);
  log.configure(capture.options(0));
  print_all(log);
  CHECK(Capture::text(capture.out.get()) == "b\n");
  CHECK(Capture::text(capture.err.get()) ==
        "[rank 3] warning: c\n[rank 3] error: d\nwarning: c\nerror: d\n");
}

TEST_CASE("a listener gets warnings and errors, from any rank", "[log]") {
  const Capture capture;
  Logger log(capture.options(2));
  std::string heard;
  log.listen([&heard](LogLevel level, std::string_view text) {
    heard += cat(level == LogLevel::kError ? "E " : "W ", text, ";");
  });
  print_all(log);
  log.listen({});
  print_all(log);
  CHECK(heard == "W c;E d;");
}

TEST_CASE("numbers of a line have six digits", "[log]") {
  const Capture capture;
  set_process_log(capture.options());
  log_info("loss ", 1.0 / 3, ", rate ", 0.1f, ", ", 1e9, ", ", 1234567, ", ", true);
  set_process_log({});
  CHECK(Capture::text(capture.out.get()) == "loss 0.333333, rate 0.1, 1e+09, 1234567, true\n");
}

TEST_CASE("the level decides what is printed", "[log]") {
  const Capture capture;
  LogOptions options = capture.options();
  options.level = LogLevel::kDebug;
  Logger talkative(options);
  print_all(talkative);
  CHECK(Capture::text(capture.out.get()) == "a\nb\n");

  const Capture few;
  options = few.options(1);
  options.level = LogLevel::kError;
  Logger terse(options);
  print_all(terse);
  CHECK(Capture::text(few.err.get()) == "[rank 1] error: d\n");
}

TEST_CASE("text is printed as it is, also when it looks like a format", "[log]") {
  const Capture capture;
  Logger log(capture.options());
  log.info("{} %s %v {0:x} 100%");
  log.info("");
  CHECK(Capture::text(capture.out.get()) == "{} %s %v {0:x} 100%\n\n");
}

TEST_CASE("a warning is one line that drives no terminal, whatever it quotes", "[log]") {
  const Capture capture;
  Logger log(capture.options());
  std::string heard;
  log.listen([&heard](LogLevel, std::string_view text) { heard = text; });
  log.warning("a\nerror: b\x1b[2J\x9b\u4e2d");
  log.info("table:\n\ta\x1b[2J\xff");  // tables and samples have several lines
  CHECK(heard == "a\\x0aerror: b\\x1b[2J\\x9b\u4e2d");
  CHECK(Capture::text(capture.err.get()) == "warning: " + heard + "\n");
  CHECK(Capture::text(capture.out.get()) == "table:\n\ta\\x1b[2J\\xff\n");
}

TEST_CASE("lines of several threads stay whole", "[log]") {
  const Capture capture;
  Logger log(capture.options());
  const std::string line(200, 'x');
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) log.info(line);
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::string want;
  for (int i = 0; i < 200; ++i) want += line + "\n";
  CHECK(Capture::text(capture.out.get()) == want);
}

TEST_CASE("a file that is no terminal has no status line", "[log]") {
  const Capture capture;
  Logger log(capture.options());
  CHECK_FALSE(log.has_status_line());
  log.status("50%");
  log.info("done");
  CHECK(Capture::text(capture.out.get()) == "done\n");
}

TEST_CASE("a log that cannot be written is lost without harm", "[log]") {
  const std::unique_ptr<FILE, int (*)(FILE*)> full(std::fopen("/dev/full", "w"), std::fclose);
  REQUIRE(full != nullptr);
  Logger log({.out = full.get(), .err = full.get()});
  CHECK_NOTHROW(print_all(log));
  CHECK(log.enabled(LogLevel::kInfo));
}

}  // namespace shale
