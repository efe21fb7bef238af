#include <algorithm>
#include <cstdio>
#include <iterator>
#include <utility>

#include "shale/base/error.h"
#include "shale/base/log.h"
#include "shale/comm/fingerprint.h"
#include "shale/comm/watch/watchdog_internal.h"

namespace shale::comm {
namespace {

// Interval of the watchdog: short enough to report a failure before the end of the job.
constexpr std::chrono::milliseconds kInterval{50};
constexpr uint64_t kBeatsPerDatagram = 4;
// A longer time between two iterations means that this host or process was suspended.
constexpr double kLongestTick_s = 1;
// Time after which ranks of other hosts should have been heard.
constexpr double kFirstNews_s = 10;
// Time after which the launcher, if it can, has ended the ranks of a failed job.
constexpr double kLauncherPatience_s = 4;

// Silence that makes a rank count as lost once another rank's wait has reached its time-out.
constexpr double kSuspicious_s = 10;

constexpr int kCommCode = static_cast<int>(ExitCode::kComm);

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
  // Sends the first heartbeat before the ranks meet. Other ranks can then notice missing heartbeats
  // of this rank even if this thread never gets to run.
  table_.put(context_.rank, {.beats = ++beats_});
  int one_node = node.size() == world.size() ? 1 : 0;
  check_mpi(MPI_Allreduce(MPI_IN_PLACE, &one_node, 1, MPI_INT, MPI_MIN, world.get()),
            "MPI_Allreduce");
  if (one_node == 0) {
    link_ = std::make_unique<HeartbeatLink>(world, node);
    // Sends the heartbeat to the other nodes before the ranks meet, too.
    link_->send(table_, /*failure=*/0);
    check_mpi(MPI_Barrier(world.get()), "MPI_Barrier");
  }
  thread_ = std::thread([this] { thread_main(); });
}

Watchdog::~Watchdog() {
  stop();
}

void Watchdog::at_step(int64_t step) {
  step_.store(step, std::memory_order_relaxed);
  // Sets the step without waiting for the next heartbeat, before which this rank may be stopped.
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
  double limit_s = options_.timeout_s;
  if (context_.signs.asked()) limit_s = std::min(limit_s / 2, kSuspicious_s);
  if (silence_.silent_for(limit_s).empty() || context_.board.any()) return;
  // Ranks that were lost together are named together, even if their last heartbeats differ.
  alarm(silence_.silent_for(std::max(limit_s / 2, limit_s - 1)), limit_s);
}

// Sends heartbeats at intervals; sends failures immediately, and forwards those of other nodes.
void Watchdog::tell_neighbors() {
  const int here = failure_on_node();
  const int failure = here != 0 ? here : table_.failure_elsewhere();
  if (beats_ % kBeatsPerDatagram != 1 && failure == told_failure_) return;
  link_->send(table_, failure);
  told_failure_ = failure;
}

// Keeps the stack of a collective that is about to time out: its exception will unwind the stack.
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

// Warns of ranks that were never heard, most likely due to a firewall; they never count as lost.
void Watchdog::warn_of_unheard() {
  if (warned_ || awake_s_ < kFirstNews_s) return;
  warned_ = true;
  std::vector<int> unheard;
  const std::vector<int> never = silence_.never_heard();
  std::set_intersection(never.begin(), never.end(), link_->watched().begin(),
                        link_->watched().end(), std::back_inserter(unheard));
  if (unheard.empty() || context_.local_rank != 0) return;
  log_warning("no heartbeats arrive on this rank from ", context_.places.list(unheard),
              ", although MPI reaches them; a firewall may block UDP. If these ranks are lost, "
              "only a timeout of a collective shows it");
}

// Exit code of this node's failed ranks; prefers a failure that no other failure has caused.
int Watchdog::failure_on_node() const {
  if (!context_.board.any()) return 0;
  int code = kCommCode;
  for (const FailureBoard::Report& report : context_.board.reports()) {
    if (!report.caused) code = report.code;
  }
  return code;
}

// Calls the listener on this thread: a failing rank waits for it, and the main thread may be busy.
void Watchdog::tell_of_failure() {
  if (const auto cause = context_.board.cause()) {
    context_.board.tell(cause->code, cause->message);
  } else if (const int code = table_.failure_elsewhere(); code != 0) {
    context_.board.tell(code, "stopped, because ranks on another host failed");
  }
}

// Reports what this rank was doing, after communication failures. Ranks that fail by themselves
// print their reason instead.
void Watchdog::report_failure() {
  const int here = failure_on_node(), elsewhere = table_.failure_elsewhere();
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
  report(message);
  gave_up_ = true;
  options_.fail(message, /*caused=*/false);
}

void Watchdog::report(const std::string& reason) {
  if (std::exchange(reported_, true)) return;
  const std::string prefix = cat("[rank ", context_.rank, "] ");
  const int64_t step = step_.load(std::memory_order_relaxed);
  std::string text = reason.empty() ? "" : cat(prefix, reason, "\n");
  text += cat(prefix, step >= 0 ? cat("in step ", step) : std::string("before a step"),
              "; last collectives, newest first:\n");
  const auto collectives = context_.recent.describe_all();
  if (collectives.empty()) text += cat(prefix, "  none\n");
  for (const std::string& line : collectives) text += cat(prefix, "  ", line, "\n");
  print(text);
  // The text is printed first: finding function names may take longer than ranks wait for this one.
  if (kept_stack_.empty() && !main_failing_.load()) kept_stack_ = main_thread_.sample();
  if (kept_stack_.empty()) return;
  text = cat(prefix, "main thread:\n");
  for (const std::string& function : kept_stack_) text += cat(prefix, "  ", function, "\n");
  print(text);
}

}  // namespace shale::comm
