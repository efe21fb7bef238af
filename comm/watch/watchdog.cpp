#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <iterator>
#include <map>
#include <utility>

#include "shale/base/error.h"
#include "shale/base/host_name.h"
#include "shale/base/log.h"
#include "shale/comm/fingerprint.h"
#include "shale/comm/watch/watchdog_internal.h"

namespace shale::comm {
namespace {

// Interval of the watchdog. It is short enough to report a failure before the end of the job.
constexpr std::chrono::milliseconds kInterval{50};
constexpr uint64_t kBeatsPerDatagram = 4;
// A longer time between two iterations means that this host or process was suspended.
constexpr double kLongestTick_s = 1;
// Time after which a heartbeat of every rank on other hosts should have arrived.
constexpr double kFirstNews_s = 10;
// Time after which the launcher has ended the ranks of a failed job, if it can.
constexpr double kLauncherPatience_s = 4;

// A rank that is silent this long counts as lost if another rank's wait has reached its time-out,
// or if this rank was asked to end.
constexpr double kSuspicious_s = 10;

constexpr int kCommCode = static_cast<int>(ExitCode::kComm);

// Limits of the reports on standard error. Only ranks of the first kPrintingNodes nodes report. On
// each node one rank reports for all ranks that do the most common thing, and up to kUnlikeRanks
// others for themselves.
constexpr int kPrintingNodes = 8;
constexpr int64_t kUnlikeRanks = 3;
// Waiting times. kViews: until the ranks of a node have said what they are doing. kTellings: until
// hosts have told each other which rank fails.
constexpr std::chrono::milliseconds kViews{100};
constexpr int kTellings = 4;               // watchdog intervals to wait
// maximum bytes of a host's file of reports; a longer file is emptied first
constexpr off_t kLargestReport = 4 << 20;

// Prints lines in one write, so that the outputs of ranks do not mix.
void print(const std::string& lines) {
  std::fwrite(lines.data(), 1, lines.size(), stderr);
  std::fflush(stderr);
}

}  // namespace

Watchdog::Watchdog(WorldContext& context, const MpiComm& world, const MpiComm& node,
                   const Options& options)
    : context_(context),
      options_(options),
      memory_(NodeMemory::create(node, HeartbeatTable::bytes(world.size()), context.peers_can_map)),
      table_(memory_->data(), world.size()),
      silence_(world.size()) {
  // Send the first heartbeat before the ranks meet. Other ranks can then notice that heartbeats of
  // this rank are missing, even if this thread never gets to run.
  table_.put(context_.rank, {.beats = ++beats_});
  node_ranks_.resize(static_cast<size_t>(node.size()));
  check_mpi(MPI_Allgather(&context_.rank, 1, MPI_INT, node_ranks_.data(), 1, MPI_INT, node.get()),
            "MPI_Allgather");
  const int leads = node.rank() == 0 ? 1 : 0;
  check_mpi(MPI_Exscan(&leads, &node_index_, 1, MPI_INT, MPI_SUM, world.get()), "MPI_Exscan");
  if (context_.rank == 0) node_index_ = 0;  // MPI leaves the result of the first rank undefined
  check_mpi(MPI_Bcast(&node_index_, 1, MPI_INT, 0, node.get()), "MPI_Bcast");
  int one_node = node.size() == world.size() ? 1 : 0;
  check_mpi(MPI_Allreduce(MPI_IN_PLACE, &one_node, 1, MPI_INT, MPI_MIN, world.get()),
            "MPI_Allreduce");
  if (one_node == 0) {
    link_ = std::make_unique<HeartbeatLink>(world, node);
    // Send the heartbeat to other nodes too before the ranks meet.
    link_->send(table_, /*failure=*/{});
    check_mpi(MPI_Barrier(world.get()), "MPI_Barrier");
  }
  thread_ = std::thread([this] { thread_main(); });
}

Watchdog::~Watchdog() {
  stop();
}

void Watchdog::at_step(int64_t step) {
  step_.store(step, std::memory_order_relaxed);
  // Do not leave the step to the next heartbeat, because this rank may be stopped before it.
  table_.set_step(context_.rank, step);
}

void Watchdog::stop() {
  stop_ = true;
  if (thread_.joinable()) thread_.join();
}

void Watchdog::thread_main() {
  Clock::time_point before = Clock::now();
  for (;;) {
    const bool last = stop_.load();
    const Clock::time_point now = Clock::now();
    look(std::chrono::duration<double>(now - before).count());
    before = now;
    if (last || gave_up_) break;
    std::this_thread::sleep_for(kInterval);
  }
  context_.signs.end();
}

void Watchdog::look(double elapsed_s) {
  awake_s_ += std::min(elapsed_s, kLongestTick_s);
  suspended_ = elapsed_s > kLongestTick_s;
  const Heartbeat mine{.beats = ++beats_, .step = step_.load(std::memory_order_relaxed)};
  table_.put(context_.rank, mine);
  if (link_ != nullptr) {
    link_->receive(table_);
    tell_neighbors();
    warn_of_unheard();
  }
  silence_.look(table_, elapsed_s, kLongestTick_s);
  context_.signs.set_longest_silence(silence_.longest());
  keep_stack_of_long_wait();
  tell_of_failure();
  report_failure();
  if (gave_up_) return;
  double limit_s = options_.lost_s;
  if (options_.ending && options_.ending()) limit_s = std::min(limit_s, kSuspicious_s);
  if (context_.signs.asked()) limit_s = std::min(limit_s / 2, kSuspicious_s);
  if (silence_.silent_for(limit_s).empty() || context_.board.any()) return;
  // Name all ranks that were lost together, even if their last heartbeats are up to a second apart.
  alarm(silence_.silent_for(std::max(limit_s / 2, limit_s - 1)), limit_s);
}

// Sends heartbeats at intervals, and failures at once. Forwards failures of other nodes.
void Watchdog::tell_neighbors() {
  const HeartbeatLink::Failure failure = known_failure();
  if (beats_ % kBeatsPerDatagram != 1 && failure == told_failure_) return;
  link_->send(table_, failure);
  told_failure_ = failure;
}

// Keeps the main thread's stack when a collective is about to time out, because the exception will
// unwind the stack.
void Watchdog::keep_stack_of_long_wait() {
  constexpr double kBefore_s = 0.25;
  const auto entries = context_.recent.newest_first();
  const auto waits = [&](const RecentCollectives::Entry& entry) {
    const std::chrono::duration<double> time = Clock::now() - entry.begun;
    return entry.running && time.count() > options_.timeout_s - kBefore_s;
  };
  const auto longest = std::find_if(entries.begin(), entries.end(), waits);
  if (longest == entries.end() || longest->id == kept_id_ || main_failing_.load()) return;
  kept_id_ = longest->id;
  kept_stack_ = main_thread_.sample();
}

// Warns of ranks from which no heartbeat has ever arrived, because there is no route or a firewall
// blocks them. Such ranks never count as lost.
void Watchdog::warn_of_unheard() {
  if (warned_ || awake_s_ < kFirstNews_s) return;
  warned_ = true;
  std::vector<int> unheard;
  const std::vector<int> never = silence_.never_heard();
  std::set_intersection(never.begin(), never.end(), link_->watched().begin(),
                        link_->watched().end(), std::back_inserter(unheard));
  if (unheard.empty() || context_.local_rank != 0) return;
  const std::vector<int>& far = link_->out_of_reach();
  const bool no_route = std::includes(far.begin(), far.end(), unheard.begin(), unheard.end());
  log_warning("no heartbeats arrive on this rank from ", context_.places.list(unheard),
              no_route ? ": there is no IP route between their host and this host"
                       : ", although MPI reaches them; a firewall may block UDP",
              ". If these ranks are lost, only a timeout of a collective shows it");
}

// Failure of a rank on this node. Prefers one that no other failure has caused.
HeartbeatLink::Failure Watchdog::failure_on_node() const {
  HeartbeatLink::Failure failure;
  if (alarmed_) failure = {.code = kCommCode, .rank = node_ranks_.front()};
  if (!context_.board.any()) return failure;
  failure.code = kCommCode;
  for (const FailureBoard::Report& report : context_.board.reports()) {
    if (report.caused) continue;
    failure.code = report.code;
    if (failure.rank < 0) failure.rank = node_ranks_[static_cast<size_t>(report.rank)];
  }
  return failure;
}

// Failure on any node, as far as this node knows.
HeartbeatLink::Failure Watchdog::known_failure() const {
  HeartbeatLink::Failure failure = failure_on_node();
  if (failure.code == 0) failure.code = table_.failure_elsewhere();
  const int other = table_.failing_elsewhere();
  if (other >= 0 && (failure.rank < 0 || other < failure.rank)) failure.rank = other;
  return failure;
}

bool Watchdog::lower_rank_fails() const {
  const auto end = Clock::now() + kTellings * kInterval;
  const bool hears = link_ != nullptr && std::this_thread::get_id() != thread_.get_id();
  for (;;) {
    const int other = table_.failing_elsewhere();
    if (other >= 0 && other < node_ranks_.front()) return true;
    if (!hears || Clock::now() >= end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

// Calls the failure listener. This thread does it, because the failing rank waits for it and the
// main thread may be busy.
void Watchdog::tell_of_failure() {
  if (const auto cause = context_.board.cause()) {
    context_.board.tell(cause->code, cause->message);
  } else if (const int code = table_.failure_elsewhere(); code != 0) {
    context_.board.tell(code, "stopped, because ranks on another host failed");
  }
}

// Reports what this rank was doing, if communication has failed. A rank that fails by itself in
// another way prints its reason instead.
void Watchdog::report_failure() {
  const int here = failure_on_node().code, elsewhere = table_.failure_elsewhere();
  if (here == kCommCode) {
    std::string reason;
    for (const FailureBoard::Report& failed : context_.board.reports()) {
      if (!failed.caused) reason = failed.message;
    }
    report(reason);
  } else if (elsewhere == kCommCode) {
    report("ranks on another host failed");
  }
  if (elsewhere == 0) return;
  if (elsewhere_since_s_ < 0) elsewhere_since_s_ = awake_s_;
  if (awake_s_ < elsewhere_since_s_ + kLauncherPatience_s) return;
  gave_up_ = true;
  options_.fail("stopped, because ranks on another host failed", /*caused=*/true);
}

void Watchdog::alarm(const std::vector<int>& silent, double silence_s) {
  std::string steps;
  for (const int rank : silent) {
    const int64_t step = table_.get(rank).step;
    if (step >= 0) steps = cat(", last seen in step ", step);
  }
  const std::string message =
      cat(kNoHeartbeat, context_.places.list(silent), " for ", silence_s, " s",
          silent.size() == 1 ? steps : "",
          silent.size() == 1 ? ": it is stopped, or cut off" : ": they are stopped, or cut off");
  context_.board.tell(kCommCode, message);
  alarmed_ = true;
  report(message);
  for (int i = 0; link_ != nullptr && i < kTellings; ++i) {
    tell_neighbors();
    link_->receive(table_);
    std::this_thread::sleep_for(kInterval);
  }
  gave_up_ = true;
  options_.fail(message, /*caused=*/false);
}

void Watchdog::report(const std::string& reason) {
  if (std::exchange(reported_, true)) return;
  const std::string prefix = cat("[rank ", context_.rank, "] ");
  const int64_t step = step_.load(std::memory_order_relaxed);
  const std::string place = step >= 0 ? cat("in step ", step) : std::string("before a step");
  std::string text = reason.empty() ? "" : cat(prefix, reason, "\n");
  text += cat(prefix, place, "; last collectives, newest first:\n");
  const auto collectives = context_.recent.describe_all();
  if (collectives.empty()) text += cat(prefix, "  none\n");
  for (const std::string& line : collectives) text += cat(prefix, "  ", line, "\n");
  const bool is_kept = keep(text);
  if (is_kept) {
    const auto newest = context_.recent.newest_first();
    table_.set_view(context_.rank,
                    std::hash<std::string>()(newest.empty() ? place
                                                            : cat(place, newest.front().running,
                                                                  describe(newest.front().call))) |
                        1);
    std::this_thread::sleep_for(kViews);
    print_if_unlike_others(cat(prefix, reason, reason.empty() ? "" : "; ", place,
                               collectives.empty() ? "" : cat(", ", collectives.front())));
  } else {
    print(text);
  }
  // Print the text first, because finding function names may take longer than other ranks wait for
  // this one.
  if (kept_stack_.empty() && !main_failing_.load()) kept_stack_ = main_thread_.sample();
  if (kept_stack_.empty()) return;
  text = cat(prefix, "main thread:\n");
  for (const std::string& function : kept_stack_) text += cat(prefix, "  ", function, "\n");
  if (!is_kept || !keep(text)) print(text);
}

// Appends to this host's file of reports. Returns false if that fails or there is no such file.
bool Watchdog::keep(const std::string& text) const {
  if (options_.reports.empty()) return false;
  mkdir(options_.reports.c_str(), 0777);  // ignore errors, because open() shows them
  const std::string path = cat(options_.reports, "/", host_name(), ".txt");
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (file < 0) return false;
  struct stat info {};
  if (fstat(file, &info) == 0 && info.st_size > kLargestReport) {
    static_cast<void>(ftruncate(file, 0));
  }
  const bool is_whole = write(file, text.data(), text.size()) == std::ssize(text);
  return close(file) == 0 && is_whole;
}

// Prints what this rank was doing if few ranks of its node did the same. What most ranks did, one
// of them prints for all. Only the first kPrintingNodes nodes print.
void Watchdog::print_if_unlike_others(const std::string& doing) {
  // A stopped rank runs again when the launcher ends it, long after the others. It prints nothing.
  if (suspended_ || node_index_ >= kPrintingNodes) return;
  std::map<uint64_t, std::vector<int>> by_view;
  for (const int rank : node_ranks_) {
    if (const uint64_t view = table_.view(rank); view != 0) by_view[view].push_back(rank);
  }
  const auto most = std::max_element(
      by_view.begin(), by_view.end(),
      [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  if (most == by_view.end()) return;
  const std::vector<int>& alike = most->second;
  std::vector<int> unlike;
  std::set_difference(node_ranks_.begin(), node_ranks_.end(), alike.begin(), alike.end(),
                      std::back_inserter(unlike));
  std::erase_if(unlike, [&](int rank) { return table_.view(rank) == 0; });
  const auto place = std::find(unlike.begin(), unlike.end(), context_.rank) - unlike.begin();
  const bool is_alike = place == std::ssize(unlike);
  if (is_alike ? alike.front() != context_.rank : place >= kUnlikeRanks) return;
  print(cat(doing,
            is_alike && alike.size() > 1
                ? cat("; so are ", alike.size() - 1, " other ranks of ", host_name())
                : std::string(),
            is_alike ? cat("; more in ", options_.reports, "/", host_name(), ".txt") : "", "\n"));
}

}  // namespace shale::comm
