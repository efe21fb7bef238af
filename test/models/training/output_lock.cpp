#include "shale/models/training/output_lock.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <ctime>
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

const LockOptions kAtOnce = {.patience_s = 0};

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
    const std::string message = message_of<ConfigError>([&] { OutputLock(dir.path(), kAtOnce); });
    CHECK(contains(message, cat("process ", getpid(), " on host \"", this_process().host, "\"")));
    CHECK(is_in_use(dir.path()) == true);
    // is_in_use() has not released the lock.
    CHECK_THROWS_AS(OutputLock(dir.path(), kAtOnce), ConfigError);
  }
  CHECK(is_in_use(dir.path()) == false);
  CHECK(std::filesystem::is_empty(dir.path()));
  CHECK_NOTHROW(OutputLock(dir.path(), kAtOnce));
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
  CHECK(contains(message_of<ConfigError>([&] { OutputLock(dir.path(), kAtOnce); }),
                 cat("process ", owner.pid())));
  CHECK(is_in_use(dir.path()) == true);
  owner.end(SIGKILL);
  CHECK(std::filesystem::exists(dir.file("lock")));
  CHECK(is_in_use(dir.path()) == false);
  CHECK_NOTHROW(OutputLock(dir.path(), kAtOnce));
}

TEST_CASE("of many that start at once exactly one wins", "[lock]") {
  const TempDir dir;
  constexpr int kStarts = 8;
  for (const bool left_over : {false, true}) {
    for (int round = 0; round < 20; ++round) {
      LockOwner gone = this_process();
      // A new process has the number of the one that is gone, but another start time.
      gone.started += 1;
      if (left_over) dir.write("lock", owner_text(gone));
      std::filesystem::remove(dir.file("go"));
      std::vector<std::unique_ptr<Child>> starts;
      for (int i = 0; i < kStarts; ++i) {
        starts.push_back(std::make_unique<Child>([&] {
          while (!std::filesystem::exists(dir.file("go"))) std::this_thread::yield();
          try {
            const OutputLock lock(dir.path(), kAtOnce);
            dir.write(cat("winner-", getpid()), "");
            // The winner holds the lock until all other processes are refused.
            for (;;) {
              int count = 0;
              for (const auto& entry : std::filesystem::directory_iterator(dir.path())) {
                const auto name = entry.path().filename().string();
                count += name.starts_with("winner-") || name.starts_with("refused-") ? 1 : 0;
              }
              if (count >= kStarts) return 0;
              std::this_thread::yield();
            }
          } catch (const Error&) {
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

// Simulates file systems that do not show the locks of other hosts, or that have no locks.
namespace {

constexpr long kLustre = 0x0bd00bd0;
constexpr long kOther[] = {kLustre, 0x47504653, 0x19830326, 0x00c36400,
                           0x65735546};  // file systems from GPFS to FUSE
long type = kLustre;
int flock_errno = 0;  // 0: flock() succeeds, but another host may hold the lock too

LockOptions remote_disk(double patience_s = 0) {
  return {.patience_s = patience_s,
          .ending_s = 0.2,
          .settle_s = 0.01,
          .flock = [](int, int) { return (errno = flock_errno) == 0 ? 0 : -1; },
          .system_type = [](const std::string&) { return type; }};
}

// Writes a lock file that was last touched `age_s` seconds ago.
void write_lock(const TempDir& dir, const LockOwner& owner, int64_t age_s) {
  dir.write("lock", owner_text(owner));
  const timespec time{.tv_sec = std::time(nullptr) - age_s, .tv_nsec = 0};
  const std::array<timespec, 2> times{time, time};
  REQUIRE(utimensat(AT_FDCWD, dir.file("lock").c_str(), times.data(), 0) == 0);
}

const LockOwner kElsewhere = {.host = "node0007", .boot = "its boot", .pid = 1234, .started = 5678};

}  // namespace

TEST_CASE("the lock of a lost host is followed once it is silent, on every file system", "[lock]") {
  const TempDir dir;
  type = GENERATE(from_range(std::begin(kOther), std::end(kOther)));
  flock_errno = GENERATE(0, ENOSYS, ENOLCK);
  write_lock(dir, kElsewhere, 200);
  CHECK_NOTHROW(OutputLock(dir.path(), remote_disk()));
  write_lock(dir, kElsewhere, 20);
  const std::string message =
      message_of<UnavailableError>([&] { OutputLock(dir.path(), remote_disk()); });
  CHECK(contains(message, "process 1234 on host \"node0007\""));
  CHECK(contains(message, cat("remove ", dir.file("lock"))));
}

TEST_CASE("a silent owner whose lock the system still holds is not followed", "[lock]") {
  const TempDir dir;
  flock_errno = EWOULDBLOCK;
  write_lock(dir, kElsewhere, 200);
  CHECK_THROWS_AS(OutputLock(dir.path(), remote_disk()), UnavailableError);
}

TEST_CASE("an owner that falls silent is waited for, one with signs of life is not", "[lock]") {
  const TempDir dir;
  flock_errno = 0;
  write_lock(dir, kElsewhere, 179);
  CHECK_NOTHROW(OutputLock(dir.path(), remote_disk(30)));
  write_lock(dir, kElsewhere, 20);
  std::thread touching([&] {
    for (int64_t age_s = 19; age_s > 15; --age_s) {
      std::this_thread::sleep_for(std::chrono::milliseconds(150));
      write_lock(dir, kElsewhere, age_s);
    }
  });
  const std::string message =
      message_of<UnavailableError>([&] { OutputLock(dir.path(), remote_disk(30)); });
  touching.join();
  CHECK(contains(message, "is in use by process 1234"));
  CHECK_FALSE(contains(message, "may still run"));
}

TEST_CASE("a process of this host that is gone is followed without a lock", "[lock]") {
  const TempDir dir;
  flock_errno = ENOSYS;
  LockOwner gone = this_process();
  gone.started += 1;
  write_lock(dir, gone, 1);
  CHECK_NOTHROW(OutputLock(dir.path(), remote_disk()));
  // The owner is in another container, so this process cannot see whether it is alive.
  gone.boot = "another container of this host";
  write_lock(dir, gone, 1);
  CHECK_THROWS_AS(OutputLock(dir.path(), remote_disk()), UnavailableError);
}

TEST_CASE("an owner touches its lock, and finds out that it was taken over", "[lock]") {
  const TempDir dir;
  LockOptions options = remote_disk();
  options.touch_s = 0.05;
  {
    const OutputLock lock(dir.path(), options);
    const auto before = std::filesystem::last_write_time(dir.file("lock"));
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    CHECK(std::filesystem::last_write_time(dir.file("lock")) > before);
    CHECK_NOTHROW(lock.check());
    dir.write("lock", owner_text(kElsewhere));
    CHECK(contains(message_of<UnavailableError>([&] { lock.check(); }), "node0007"));
  }
  CHECK(std::filesystem::exists(dir.file("lock")));  // the other run's lock is not removed
}

// Some file systems have no locks. The content of the lock file then decides who owns the lock.
TEST_CASE("a living process of this host is believed by its number and start", "[lock]") {
  const TempDir dir;
  LockOwner owner = this_process();
  dir.write("lock", owner_text(owner));
  CHECK(contains(message_of<ConfigError>([&] { OutputLock(dir.path(), kAtOnce); }), "in use"));
  CHECK(is_in_use(dir.path()) == true);
  owner.boot = "another start of this host";
  dir.write("lock", owner_text(owner));
  CHECK(is_in_use(dir.path()) == false);
  CHECK_NOTHROW(OutputLock(dir.path(), kAtOnce));
}

TEST_CASE("what is no lock file of ours is followed on a disk of this host", "[lock]") {
  const TempDir dir;
  for (const char* text : {"", "{", "[]", "{\"host\": 3}"}) {
    dir.write("lock", text);
    CHECK_NOTHROW(OutputLock(dir.path(), kAtOnce));
  }
  // A symbolic link is not followed, so no other file is overwritten.
  dir.write("precious", "text");
  std::filesystem::create_symlink("precious", dir.file("lock"));
  CHECK_THROWS_AS(OutputLock(dir.path(), kAtOnce), DiskError);
  CHECK(test::read_file(dir.file("precious")) == "text");
}

TEST_CASE("an owner that is just ending is waited for", "[lock]") {
  const TempDir dir;
  auto lock = std::make_unique<OutputLock>(dir.path());
  std::thread ending([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    lock.reset();
  });
  CHECK_NOTHROW(OutputLock(dir.path(), {.ending_s = 30}));
  ending.join();
}

}  // namespace shale::models
