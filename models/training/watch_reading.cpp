#include "shale/models/training/watch_reading.h"

#include <chrono>
#include <exception>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "shale/base/error.h"
#include "shale/base/host_name.h"
#include "shale/base/log.h"
#include "shale/base/parse.h"
#include "shale/comm/checkpoint/problems.h"
#include "shale/models/training/stop_signals.h"

namespace shale::models {

OnReading watch_reading() {
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kSilence{2};
  return [start = Clock::now(), told = false](const std::string& file) mutable {
    if (StopSignals::received() != 0) {
      throw ErrorWithCode<ExitCode::kInterrupted>(
          cat("stopped while reading ", file, ", as a signal asked for; nothing was saved"));
    }
    if (told || Clock::now() - start < kSilence) return;
    told = true;
    log_info("reading ", printable(file));
  };
}

namespace {

constexpr const char* kTag = "data of the host";

// Reads in the first process of a group, which broadcasts its progress: kGoesOn any number of
// times, then the error or "", then the result.
class GroupReader {
 public:
  explicit GroupReader(std::unique_ptr<comm::ProcessGroup> group) : group_(std::move(group)) {}

  bool is_alone() const { return group_->size() == 1; }

  std::string read(const std::function<std::string()>& read) {
    if (group_->rank() > 0) return receive();
    std::string result;
    std::exception_ptr error;
    is_reading_ = true;
    try {
      result = read();
    } catch (...) {
      error = std::current_exception();
    }
    is_reading_ = false;
    tell(comm::pack_problem(error));
    if (error != nullptr) std::rethrow_exception(error);
    tell(result);
    return result;
  }

  void go_on() {
    if (!is_reading_ || Clock::now() - told_ < kPause) return;
    tell(kGoesOn);
    told_ = Clock::now();
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr const char* kGoesOn = "goes on";
  static constexpr std::chrono::seconds kPause{1};

  void tell(const std::string& text) { group_->broadcast_bytes(text, 0, kTag); }
  std::string receive() {
    std::string state = kGoesOn;
    while (state == kGoesOn) state = group_->broadcast_bytes({}, 0, kTag);
    comm::throw_problem(state);
    return group_->broadcast_bytes({}, 0, kTag);
  }

  std::unique_ptr<comm::ProcessGroup> group_;
  bool is_reading_ = false;
  Clock::time_point told_ = Clock::now();
};

// Returns a text that is equal for processes that find the same files under the same names:
// processes of one host with one working folder and one mount namespace.
std::string view_of_files() {
  std::error_code ignored;  // a part that cannot be read is left empty
  return cat(host_identity(), '\n', std::filesystem::current_path(ignored).string(), '\n',
             std::filesystem::read_symlink("/proc/self/ns/mnt", ignored).string());
}

}  // namespace

DataReading read_once_per_host(comm::ProcessGroup& all) {
  std::map<std::string, int> hosts;
  std::vector<int> host_of_rank;
  for (const std::string& host : all.all_gather_bytes(view_of_files(), kTag)) {
    const int next = static_cast<int>(hosts.size());
    host_of_rank.push_back(hosts.emplace(host, next).first->second);
  }
  const auto reader = std::make_shared<GroupReader>(all.split(host_of_rank, "host"));
  if (reader->is_alone()) return {};
  return {.on_reading =
              [reader, watch = watch_reading()](const std::string& file) {
                watch(file);
                reader->go_on();
              },
          .once = [reader](const auto& read) { return reader->read(read); }};
}

}  // namespace shale::models
