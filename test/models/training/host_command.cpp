#include "shale/models/training/host_command.h"

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "shale/base/host_name.h"
#include "shale/base/text.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/temp_dir.h"

namespace shale::models {
namespace {

using test::contains;
using test::TempDir;

HostCommand::Options options(const TempDir& dir, const std::string& command, double pause_s = 0) {
  return {.flag = "--after-save",
          .command = command,
          .out = dir.path(),
          .log = dir.file("log"),
          .tries = 3,
          .first_pause_s = pause_s};
}

void wait_for_text(const TempDir& dir, const std::string& text) {
  while (!std::filesystem::exists(dir.file("log")) ||
         !contains(test::read_file(dir.file("log")), text)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

void wait_for(const HostCommand& command) {
  while (command.is_busy()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

}  // namespace

TEST_CASE("a command has the shell, the checkpoint and the host, and no rank", "[host_command]") {
  const TempDir dir;
  setenv("OMPI_COMM_WORLD_RANK", "3", 1);
  setenv("PMIX_RANK", "3", 1);
  setenv("SHALE_STEP", "1", 1);
  HostCommand command(options(dir,
                              "echo $SHALE_STEP $SHALE_CHECKPOINT $SHALE_HOST | tr a-z A-Z; "
                              "echo $SHALE_OUT >&2; env | grep -c -e ^OMPI_COMM -e ^PMIX_"));
  command.start(7, {"SHALE_STEP=7", "SHALE_CHECKPOINT=/a b"});
  CHECK(command.uses(7));
  wait_for(command);
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SHALE_STEP"}) unsetenv(name);
  const std::string text = test::read_file(dir.file("log"));
  CHECK(contains(text, "7 /A B "));
  CHECK(contains(text, dir.path().string() + "\n0\n"));
  CHECK(contains(command.failure(), "exit code 1"));  // grep exits with 1 if it finds nothing
  CHECK_FALSE(command.uses(7));
}

TEST_CASE("a command that fails is tried again, and what fails for good is known",
          "[host_command]") {
  const TempDir dir;
  HostCommand command(options(dir, "echo try; [ $(grep -c try $SHALE_OUT/log) -ge $SHALE_STEP ]"));
  command.start(2, {"SHALE_STEP=2"});
  wait_for(command);
  CHECK(command.failure().empty());
  CHECK(test::read_file(dir.file("log")) == "try\ntry\n");
  command.start(9, {"SHALE_STEP=9"});
  wait_for(command);
  CHECK(test::read_file(dir.file("log")) == "try\ntry\ntry\ntry\ntry\n");
  CHECK(contains(command.failure(), cat("--after-save on host ", host_name(), ": exit code 1")));
  CHECK(contains(command.failure(), dir.file("log")));
  command.start(3, {"SHALE_STEP=3"});
  wait_for(command);
  CHECK(command.failure().empty());
}

TEST_CASE("a newer checkpoint replaces one that waits, and one that fails", "[host_command]") {
  const TempDir dir;
  HostCommand command(options(dir, "echo $SHALE_STEP; [ $SHALE_STEP = 3 ]", /*pause_s=*/600));
  for (const int64_t step : {1, 2, 3}) {
    if (step == 2) {  // waits until the command for step 1 has failed
      while (command.failure().empty()) std::this_thread::yield();
    }
    command.start(step, {cat("SHALE_STEP=", step)});
    wait_for_text(dir, cat(step, "\n"));
  }
  wait_for(command);
  CHECK(command.failure().empty());
  CHECK(test::read_file(dir.file("log")) == "1\n2\n3\n");
}

TEST_CASE("a command that runs ends with its owner, and can be stopped", "[host_command]") {
  const TempDir dir;
  sigset_t blocked, before;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &blocked, &before);  // ranks block this signal, too
  {
    HostCommand command(options(dir, "echo begins; sleep 100; echo ends"));
    command.start(1);
    wait_for_text(dir, "begins");
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  CHECK(test::read_file(dir.file("log")) == "begins\n");
}

}  // namespace shale::models
