// Every rank runs all test cases. Rank 0 reports; the output of other ranks is shown only if they
// fail. If a test fails on a rank, the rank stops and ends the job, because its peers may wait for
// it forever.

#include <catch2_any/run.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "shale/base/error.h"
#include "shale/comm/world.h"
#include "shale/test/support/ranks/harness.h"

namespace shale::test {
namespace {

comm::World* the_world = nullptr;

// Redirects standard output to memory.
class CapturedOutput {
 public:
  CapturedOutput() : file_(memfd_create("output", 0)) {
    std::fflush(stdout);
    if (file_ < 0 || dup2(file_, STDOUT_FILENO) < 0) throw InternalError("cannot redirect output");
  }
  ~CapturedOutput() { close(file_); }

  std::string text() const {
    std::fflush(stdout);
    std::string all;
    char part[4096];
    ssize_t got = 0;
    while ((got = pread(file_, part, sizeof part, static_cast<off_t>(all.size()))) > 0) {
      all.append(part, static_cast<size_t>(got));
    }
    return all;
  }

 private:
  int file_;
};

int run_cases(comm::World& world, int argc, char** argv) {
  std::vector<char*> arguments(argv, argv + argc);
  std::string abort = "--abort";  // Catch2's flag to stop at the first failure
  arguments.push_back(abort.data());

  int result = 0;
  if (world.rank() == 0) {
    result = catch2_any::run(argc + 1, arguments.data());
  } else {
    const CapturedOutput output;
    result = catch2_any::run(argc + 1, arguments.data());
    if (result != 0) {
      const std::string text = cat("---- rank ", world.rank(), "\n", output.text());
      std::fputs(text.c_str(), stderr);
    }
  }
  if (result != 0) throw InternalError("a test failed");
  // A rank that passed waits until all other ranks have passed.
  const auto group = world.group({.name = "verdict"});
  group->barrier("all tests have passed");
  return 0;
}

}  // namespace

comm::World& world() {
  return *the_world;
}

}  // namespace shale::test

int main(int argc, char** argv) {
  constexpr std::string_view kFail = "--fail=";
  const std::string_view mode = argc > 1 ? argv[1] : "";
  const auto body = [&](shale::comm::World& world) {
    shale::test::the_world = &world;
    if (mode.starts_with(kFail)) {
      return shale::test::run_failure_mode(mode.substr(kFail.size()), world);
    }
    return shale::test::run_cases(world, argc, argv);
  };
  // Only tests of stopped ranks need heartbeats: all other failures are found without them.
  const bool watch = mode.starts_with("--fail=stopped-");
  return shale::comm::run(argc, argv, body, {.timeout_s = watch ? 2. : 0});
}
