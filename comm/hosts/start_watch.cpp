#include "shale/comm/hosts/start_watch.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shale/base/clock.h"
#include "shale/base/error.h"
#include "shale/base/parse.h"
#include "shale/comm/hosts/launcher.h"

namespace shale::comm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kTick{50};
// If one iteration takes longer, this process was suspended.
constexpr double kLongestTick_s = 1;
// The lowest rank that is not stopped reports first. The others wait this long; by then the
// launcher has usually ended them.
constexpr std::chrono::seconds kPatience{4};

struct Sibling {
  int64_t rank = 0;
  bool stopped = false;
};

std::string read_all(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::optional<int64_t> own_rank() {
  for (const Launcher& launcher : launchers()) {
    if (const char* value = std::getenv(launcher.rank)) return parse_int(value);
  }
  return std::nullopt;
}

// Rank of a process according to the environment with which it was started.
std::optional<int64_t> rank_of(const std::filesystem::path& process) {
  const std::string variables = '\0' + read_all(process / "environ");
  for (const Launcher& launcher : launchers()) {
    const std::string key = cat('\0', launcher.rank, "=");
    const size_t at = variables.find(key);
    if (at == variables.npos) continue;
    const size_t begin = at + key.size();
    const size_t end = variables.find('\0', begin);
    return parse_int(std::string_view(variables).substr(begin, end - begin));
  }
  return std::nullopt;
}

// Processes of this launcher on this host, including this one.
std::vector<Sibling> siblings() {
  std::vector<Sibling> found;
  std::error_code gone;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", gone)) {
    if (!parse_int(entry.path().filename().string())) continue;
    const std::string stat = read_all(entry.path() / "stat");
    const size_t end = stat.rfind(") ");
    char state = 0;
    long parent = 0;
    if (end == stat.npos || std::sscanf(stat.c_str() + end, ") %c %ld", &state, &parent) != 2) {
      continue;
    }
    if (parent != getppid()) continue;
    const std::optional<int64_t> rank = rank_of(entry.path());
    if (rank) found.push_back({.rank = *rank, .stopped = state == 'T' || state == 't'});
  }
  std::sort(found.begin(), found.end(),
            [](const Sibling& a, const Sibling& b) { return a.rank < b.rank; });
  return found;
}

[[noreturn]] void end_start(double timeout_s, int64_t rank) {
  std::string stopped;
  std::optional<int64_t> speaker;
  for (const Sibling& sibling : siblings()) {
    if (sibling.stopped) {
      stopped += cat(stopped.empty() ? "rank " : ", rank ", sibling.rank);
    } else if (!speaker) {
      speaker = sibling.rank;
    }
  }
  if (speaker && *speaker != rank) std::this_thread::sleep_for(kPatience);
  const std::string line =
      cat("error: not all ranks have joined ", timeout_s, " s after the start: ",
          stopped.empty() ? "a rank hangs or is missing, on this host or another"
                          : stopped + " of this host is stopped",
          " (rank ", rank, ")\n");
  std::fwrite(line.data(), 1, line.size(), stderr);
  std::fflush(stderr);
  _exit(static_cast<int>(ExitCode::kComm));
}

}  // namespace

StartWatch::StartWatch(double timeout_s) {
  if (timeout_s > 0 && own_rank()) thread_ = std::thread([this, timeout_s] { run(timeout_s); });
}

StartWatch::~StartWatch() {
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void StartWatch::run(double timeout_s) {
  double awake_s = 0;
  std::unique_lock lock(mutex_);
  while (awake_s < timeout_s) {
    const auto before = Clock::now();
    if (changed_.wait_for(lock, kTick, [this] { return done_; })) return;
    const double tick_s = seconds_since(before);
    // If this process was suspended, alone or with all others, the time limit starts anew.
    awake_s = tick_s > kLongestTick_s ? 0 : awake_s + tick_s;
  }
  end_start(timeout_s, own_rank().value_or(0));
}

}  // namespace shale::comm
