#include "shale/models/training/output_lock.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "shale/base/error.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/temp_dir.h"

namespace shale::models {
namespace {

using test::contains;
using test::message_of;
using test::TempDir;

std::string owner_text(const LockOwner& owner) {
  return cat("{\"host\": \"", owner.host, "\", \"boot\": \"", owner.boot,
             "\", \"pid\": ", owner.pid, ", \"started\": ", owner.started, "}");
}

// A process that runs `body` and exits with its result, unless it is killed first.
class Child {
 public:
  explicit Child(const std::function<int()>& body) : pid_(fork()) {
    if (pid_ == 0) _exit(body());
  }
  ~Child() {
    if (pid_ > 0) end(SIGKILL);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const { return pid_; }
  int end(int signal) {
    if (signal != 0) kill(pid_, signal);
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  pid_t pid_;
};

}  // namespace

TEST_CASE("a folder has one owner, and after it none", "[lock]") {
  const TempDir dir;
  {
    const OutputLock lock(dir.path());
    const std::string message = message_of<ConfigError>([&] { OutputLock(dir.path(), 0); });
    CHECK(contains(message, cat("process ", getpid(), " on host \"", this_process().host, "\"")));
    CHECK(contains(message, dir.file("lock")));
    CHECK(contains(message, "remove "));
    CHECK(is_in_use(dir.path()) == true);
    CHECK_THROWS_AS(OutputLock(dir.path(), 0), ConfigError);  // asking has released nothing
  }
  CHECK(is_in_use(dir.path()) == false);
  CHECK(std::filesystem::is_empty(dir.path()));
  CHECK_NOTHROW(OutputLock(dir.path(), 0));
}

TEST_CASE("a killed owner is followed, a stopped one is not", "[lock]") {
  const TempDir dir;
  Child owner([&] {
    const OutputLock lock(dir.path());
    dir.write("ready", "");
    for (;;) pause();
    return 0;
  });
  while (!std::filesystem::exists(dir.file("ready"))) std::this_thread::yield();
  kill(owner.pid(), SIGSTOP);
  CHECK(contains(message_of<ConfigError>([&] { OutputLock(dir.path(), 0); }),
                 cat("process ", owner.pid())));
  CHECK(is_in_use(dir.path()) == true);
  owner.end(SIGKILL);
  CHECK(std::filesystem::exists(dir.file("lock")));
  CHECK(is_in_use(dir.path()) == false);
  CHECK_NOTHROW(OutputLock(dir.path(), 0));
}

TEST_CASE("of many that start at once exactly one wins", "[lock]") {
  const TempDir dir;
  constexpr int kStarts = 8;
  for (const bool left_over : {false, true}) {
    for (int round = 0; round < 20; ++round) {
      LockOwner gone = this_process();
      gone.started += 1;  // as if the process number had been reused
      if (left_over) dir.write("lock", owner_text(gone));
      std::filesystem::remove(dir.file("go"));
      std::vector<std::unique_ptr<Child>> starts;
      for (int i = 0; i < kStarts; ++i) {
        starts.push_back(std::make_unique<Child>([&] {
          while (!std::filesystem::exists(dir.file("go"))) std::this_thread::yield();
          try {
            const OutputLock lock(dir.path(), 0);
            dir.write(cat("winner-", getpid()), "");
            // Holds the lock until all other processes were refused.
            for (;;) {
              int count = 0;
              for (const auto& entry : std::filesystem::directory_iterator(dir.path())) {
                const auto name = entry.path().filename().string();
                count += name.starts_with("winner-") || name.starts_with("refused-") ? 1 : 0;
              }
              if (count >= kStarts) return 0;
              std::this_thread::yield();
            }
          } catch (const ConfigError&) {
            dir.write(cat("refused-", getpid()), "");
            return 64;
          }
        }));
      }
      dir.write("go", "");
      int winners = 0;
      for (const auto& start : starts) winners += start->end(0) == 0 ? 1 : 0;
      REQUIRE(winners == 1);
      CHECK_FALSE(std::filesystem::exists(dir.file("lock")));
      for (const auto& entry : std::filesystem::directory_iterator(dir.path())) {
        std::filesystem::remove(entry.path());
      }
    }
  }
}

// Without a system lock on the file (some file systems have none), the content of the lock file
// decides.
TEST_CASE("a living process of this host is believed by its number and start", "[lock]") {
  const TempDir dir;
  LockOwner owner = this_process();
  dir.write("lock", owner_text(owner));
  CHECK(contains(message_of<ConfigError>([&] { OutputLock(dir.path(), 0); }), "in use"));
  CHECK(is_in_use(dir.path()) == true);
  owner.boot = "another start of this host";
  dir.write("lock", owner_text(owner));
  CHECK(is_in_use(dir.path()) == false);
  CHECK_NOTHROW(OutputLock(dir.path(), 0));
}

TEST_CASE("what is no lock file of ours is followed on a disk of this host", "[lock]") {
  const TempDir dir;
  for (const char* text : {"", "{", "[]", "{\"host\": 3}"}) {
    dir.write("lock", text);
    CHECK_NOTHROW(OutputLock(dir.path(), 0));
  }
  // A symbolic link is not followed, so no other file is overwritten.
  dir.write("precious", "text");
  std::filesystem::create_symlink("precious", dir.file("lock"));
  CHECK_THROWS_AS(OutputLock(dir.path(), 0), DiskError);
  CHECK(test::read_file(dir.file("precious")) == "text");
}

TEST_CASE("an owner that is just ending is waited for", "[lock]") {
  const TempDir dir;
  auto lock = std::make_unique<OutputLock>(dir.path());
  std::thread ending([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    lock.reset();
  });
  CHECK_NOTHROW(OutputLock(dir.path(), 30));
  ending.join();
}

}  // namespace shale::models
