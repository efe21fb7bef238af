#include "shale/models/training/checks/bandwidth_check.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <limits>
#include <sstream>
#include <vector>

#include "shale/base/error.h"
#include "shale/base/host_name.h"
#include "shale/base/log.h"
#include "shale/base/text.h"
#include "shale/comm/node/shm_wait.h"

namespace shale::models {
namespace {

using Clock = std::chrono::steady_clock;

// A warning is logged if the all-reduce rate of a group is below this fraction of its memory copy
// rate. On separate cores, two ranks reach 2 to 3 times the copy rate without staging buffers,
// about the copy rate with them, slightly less over MPI, and a quarter of these values on machines
// with less memory bandwidth. The limit is far lower, because a false warning is worse than none.
constexpr double kPartOfCopies = 1.0 / 16;

constexpr int64_t kSmall = 64 << 10, kLarge = 4 << 20;  // bytes of the all-reduced buffers
constexpr double kBudget_s = 0.02;                      // maximum total duration of the timed runs
constexpr int kMostRuns = 6;
constexpr int kMostRoots = 16;

// Buffer from the group's own memory provider. The group accesses such memory most directly.
class GroupBuffer {
 public:
  GroupBuffer(comm::ProcessGroup& group, int64_t bytes)
      : provider_(group.memory()),
        bytes_(static_cast<size_t>(bytes)),
        data_(provider_.allocate(bytes_)) {}
  ~GroupBuffer() { provider_.free(data_, bytes_); }
  GroupBuffer(const GroupBuffer&) = delete;
  GroupBuffer& operator=(const GroupBuffer&) = delete;

  View view(int64_t bytes) const { return make_view(static_cast<int32_t*>(data_), {bytes / 4}); }

 private:
  MemoryProvider& provider_;
  size_t bytes_;
  void* data_;
};

template <typename Run>
int64_t nanoseconds(Run&& run) {
  const auto start = Clock::now();
  run();
  return std::chrono::nanoseconds(Clock::now() - start).count();
}

// Returns how long this thread has been runnable without a core. If the system does not report it,
// returns the time of a clock, so that every interval counts as a wait.
int64_t coreless_ns() {
  std::ifstream file("/proc/thread-self/schedstat");
  int64_t on_core = 0, waiting = 0;
  return file >> on_core >> waiting ? waiting : Clock::now().time_since_epoch().count();
}

// Times a function on all ranks, several times. The fastest run counts, because other load can only
// slow it down. If in any run no rank waited for a core, only such runs count.
class Timing {
 public:
  explicit Timing(comm::ProcessGroup& host) : host_(host) {}

  // Runs at least once, at most `runs` times, and until `budget_s` has passed.
  template <typename Run>
  void repeat(int runs, double budget_s, Run&& run) {
    const auto start = Clock::now();
    const auto budget_ns = static_cast<int64_t>(budget_s * 1e9);
    int64_t passed_ns = 0;
    for (int i = 0; i < runs && (i == 0 || passed_ns < budget_ns); ++i) {
      passed_ns = time(start, run);
    }
  }
  double seconds() const { return static_cast<double>(ns_) * 1e-9; }
  bool undisturbed() const { return undisturbed_; }

 private:
  // Times one run. Returns the nanoseconds since `start`, which are equal on all ranks.
  template <typename Run>
  int64_t time(Clock::time_point start, Run&& run) {
    host_.barrier("bandwidth");
    const int64_t before = coreless_ns();
    int64_t slowest[] = {nanoseconds(run), 0, 0};
    slowest[1] = coreless_ns() - before;
    slowest[2] = std::chrono::nanoseconds(Clock::now() - start).count();
    host_.all_reduce_max(make_view(slowest, {3}), {.tag = "bandwidth"});
    const auto [ns, without_core_ns, passed_ns] = slowest;
    const bool undisturbed = without_core_ns * 20 < ns;
    if (undisturbed == undisturbed_ ? ns < ns_ : undisturbed) ns_ = std::max<int64_t>(ns, 1);
    undisturbed_ = undisturbed_ || undisturbed;
    return passed_ns;
  }

  comm::ProcessGroup& host_;
  int64_t ns_ = std::numeric_limits<int64_t>::max();
  bool undisturbed_ = false;
};

struct Measured {
  int64_t bytes = 0;  // size of the all-reduced buffer
  double bytes_per_s = 0;
  double copy_bytes_per_s = 0;  // copy rate of the slowest rank while all ranks copy
  bool undisturbed = false;     // no rank waited for a core during the fastest run
};

Measured measure(comm::ProcessGroup& group, Context& context, const GroupBuffer& buffer) {
  comm::ProcessGroup& host = group.host();
  const auto all_reduce = [&](int64_t bytes) {
    return [&, bytes] {
      group.all_reduce_sum(buffer.view(bytes),
                           {.tag = "bandwidth", .stream = context.exec().stream});
      context.synchronize();
    };
  };
  Timing first(host), small(host), large(host), copies(host);
  first.repeat(1, 0, all_reduce(kSmall));  // sets up connections, maps other ranks' memory
  small.repeat(1, 0, all_reduce(kSmall));
  // Chooses a buffer size that fits the time budget. The time grows at most in proportion to the
  // size.
  const auto times = static_cast<int64_t>(kBudget_s / kMostRuns / small.seconds());
  Measured measured{.bytes = kSmall * std::clamp<int64_t>(times, 1, kLarge / kSmall)};
  large.repeat(kMostRuns, kBudget_s, all_reduce(measured.bytes));
  const View view = buffer.view(measured.bytes);
  const double ring_bytes = comm::ring_bytes(
      {.op = comm::CollectiveOp::kAllReduceSum, .in = view, .out = view}, group.size());
  measured.bytes_per_s = ring_bytes / large.seconds();

  std::vector<std::byte> from(kLarge), to(kLarge);
  std::memcpy(to.data(), from.data(), from.size());  // first use maps the pages
  copies.repeat(kMostRuns, kBudget_s / 2,
                [&] { std::memcpy(to.data(), from.data(), from.size()); });
  measured.copy_bytes_per_s = static_cast<double>(kLarge) / copies.seconds();
  measured.undisturbed = large.undisturbed() && copies.undisturbed();
  return measured;
}

// Returns which rank, on which host, takes longest to receive broadcasts. An all-reduce cannot show
// this rank, because all ranks finish it at the same time.
std::string describe_slowest(comm::ProcessGroup& group, Context& context, const GroupBuffer& buffer,
                             int64_t bytes) {
  comm::ProcessGroup& host = group.host();
  int64_t mine_ns = 0;
  const int roots = std::min(group.size(), kMostRoots);
  for (int i = 0; i < roots; ++i) {
    const int root = static_cast<int>(int64_t{i} * group.size() / roots);
    host.barrier("bandwidth");
    const int64_t ns = nanoseconds([&] {
      group.broadcast(buffer.view(bytes), root,
                      {.tag = "bandwidth", .stream = context.exec().stream});
      context.synchronize();
    });
    if (root != group.rank()) mine_ns += ns;
  }
  std::vector<std::pair<int64_t, std::string>> ranks;  // nanoseconds, name of the rank
  for (const std::string& text :
       host.all_gather_bytes(cat(mine_ns, " ", host_name()), "bandwidth")) {
    std::istringstream words(text);
    int64_t ns = 0;
    std::string name;
    words >> ns >> name;
    ranks.emplace_back(ns, cat("rank ", ranks.size(), " on ", name));
  }
  const auto slowest = std::max_element(ranks.begin(), ranks.end());
  const std::pair<int64_t, std::string> found = *slowest;
  std::nth_element(ranks.begin(), ranks.begin() + static_cast<int64_t>(ranks.size() / 2),
                   ranks.end());
  const int64_t median_ns = std::max<int64_t>(ranks[ranks.size() / 2].first, 1);
  const double times = static_cast<double>(found.first) / static_cast<double>(median_ns);
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f", times);
  return cat("slowest to receive: ", found.second, ", ", text.data(), " times the median");
}

std::string rate(double bytes_per_s) {
  return cat(format_bytes(bytes_per_s), "/s");
}

}  // namespace

void check_bandwidth(comm::ProcessGroup& group, Context& context, const comm::World& world,
                     double expected_bytes_per_s) {
  if (group.size() == 1) return;
  comm::ProcessGroup& host = group.host();
  std::array<int64_t, 2> shared = {comm::node_is_crowded(world.local_size()) ? 1 : 0,
                                   world.local_size() < world.size() ? 1 : 0};
  host.all_reduce_max(make_view(shared.data(), {2}), {.tag = "bandwidth"});
  const bool crowded = shared[0] != 0, several_hosts = shared[1] != 0;
  const bool copies_compare =
      !several_hosts && !crowded && context.device().type == DeviceType::kCpu;
  if (expected_bytes_per_s == 0 && !copies_compare && (crowded || !several_hosts)) return;

  struct ResetTraffic {  // excludes this traffic from the training's counters
    comm::ProcessGroup& group;
    ~ResetTraffic() { group.reset_traffic(); }
  };
  const ResetTraffic reset{group};
  const GroupBuffer buffer(group, kLarge);
  const Measured measured = measure(group, context, buffer);
  std::string reason = "the given value";
  if (expected_bytes_per_s == 0 && !several_hosts && !measured.undisturbed) return;
  if (expected_bytes_per_s == 0 && copies_compare) {
    expected_bytes_per_s = measured.copy_bytes_per_s * kPartOfCopies;
    reason = cat("1/", 1 / kPartOfCopies, " of the bandwidth of memory copies");
  }
  const std::string found =
      cat("all-reduce of ", format_bytes(static_cast<double>(measured.bytes)), " over ",
          group.size(), " ranks: ", rate(measured.bytes_per_s), " per rank",
          measured.undisturbed ? "" : " (while other processes used the CPUs)");
  if (measured.bytes_per_s >= expected_bytes_per_s) {
    if (several_hosts) log_info(found);
    return;
  }
  const std::string slowest = describe_slowest(group, context, buffer, measured.bytes);
  if (group.rank() != 0) return;
  log_warning(found, ", expected at least ", rate(expected_bytes_per_s), ", ", reason, "; ",
              slowest);
}

}  // namespace shale::models
