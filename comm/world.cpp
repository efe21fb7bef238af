#include "shale/comm/world.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <sstream>
#include <thread>

#include "shale/base/failure.h"
#include "shale/base/host_name.h"
#include "shale/base/log.h"
#include "shale/comm/collective_slices.h"
#include "shale/comm/group_factory_internal.h"
#include "shale/comm/hosts/launcher.h"
#include "shale/comm/mpi_communicator.h"
#include "shale/comm/node/node_memory.h"
#include "shale/comm/node/shm_wait.h"
#include "shale/comm/watch/watchdog_internal.h"
#include "shale/comm/world_context.h"

namespace shale::comm {
namespace {

using Clock = std::chrono::steady_clock;

// A failed rank waits this long for other ranks to fail too, before it ends the job. Wrong flags
// and missing files make all ranks fail within milliseconds.
constexpr std::chrono::milliseconds kTogether{200};
// Time for the reports of ranks that failed because of the first failure. It is enough to collect a
// stack. Afterwards the launcher kills the ranks.
constexpr std::chrono::milliseconds kReports{700};
// Other ranks wait this long for the responsible rank to end the job.
constexpr std::chrono::milliseconds kPatience{1500};
// Time limit of MPI_Abort. It asks a daemon on this host, which may ask one on an unreachable host.
constexpr std::chrono::milliseconds kAbortPatience{2000};

// Refuses launchers such as torchrun, which set rank numbers but start no MPI. Each process would
// be the only rank of its own run, and all would write to the same files.
void refuse_other_launchers() {
  const char *rank = std::getenv("RANK"), *size = std::getenv("WORLD_SIZE");
  if (rank == nullptr || size == nullptr || std::string_view(size) == "1") return;
  throw ConfigError(cat("found RANK=", rank, " and WORLD_SIZE=", size,
                        ", as torchrun sets them, but no MPI launcher: start `shale join -- train "
                        "lm ...` in place of this program; or use mpirun -np ",
                        size, " PROGRAM, or srun; or unset WORLD_SIZE for a run of one rank"));
}

// Raises the soft limit of open files to the hard limit. MPI over TCP opens a socket for each rank
// of another host that it talks to, and the usual soft limit is 1,024.
void raise_descriptor_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

void print_failure(std::string_view message, int rank, int size) {
  print_error(size == 1 ? std::string(message) : cat(message, " (rank ", rank, " of ", size, ")"));
}

// Ends the job, or at least this process.
[[noreturn]] void abort_job(int code) {
  std::thread([code] {
    std::this_thread::sleep_for(kAbortPatience);
    _exit(code);
  }).detach();
  MPI_Abort(MPI_COMM_WORLD, code);
  _exit(code);
}

// True if two messages report the same failure. Messages about missing heartbeats may differ in
// their times.
bool tell_the_same(std::string_view one, std::string_view other) {
  return one == other || (one.starts_with(kNoHeartbeat) && other.starts_with(kNoHeartbeat));
}

// Objects that must exist until the process ends, because other threads may still use them.
std::vector<std::shared_ptr<void>>& kept_until_exit() {
  static auto& kept = *std::make_unique<std::vector<std::shared_ptr<void>>>().release();
  return kept;
}

// True if another rank failed first; that rank reports the failure itself.
bool is_caused(std::exception_ptr error) {
  try {
    std::rethrow_exception(error);
  } catch (const PeerFailure&) {
    return true;
  } catch (...) {
    return false;
  }
}

}  // namespace

struct World::Impl {
  std::shared_ptr<WorldContext> context = std::make_shared<WorldContext>();
  bool guest = false;  // the program started MPI itself
  MpiComm duplicate;   // duplicate of the guest's communicator
  MPI_Comm all = MPI_COMM_WORLD;
  MpiComm node;
  std::unique_ptr<NodeMemory> board_memory;
  MPI_Request meeting = MPI_REQUEST_NULL;  // barrier of all ranks, at the end or after a failure
  bool finished = false;                   // all ranks have entered the barrier
  std::atomic<bool> failing{false};        // a thread is ending the run
  std::unique_ptr<Watchdog> watchdog;

  void start_mpi();
  void become_guest(MPI_Comm comm);
  void join();         // connects this rank with the other ranks of `all`
  void leave_mpi();    // collective
  void leave_alone();  // ends a failed World in a program that started MPI itself
  std::unique_ptr<HostGroup> host_group(const GroupOptions& options);
  // caused: another rank failed first and reports the failure itself.
  int fail(ExitCode code, std::string_view message, bool caused);
  // Runs on the watchdog's thread. Returns only in a guest, or if the main thread is already ending
  // the run.
  void fail_from_watchdog(const std::string& message, bool caused);
  int end_run(ExitCode code, std::string_view message, bool caused);
  std::vector<FailureBoard::Report> wait_for_others();
  bool meet();  // enters the barrier; true if all ranks have entered
  bool meet_soon();
};

void World::Impl::start_mpi() {
  int is_initialized = 0;
  MPI_Initialized(&is_initialized);
  if (is_initialized != 0) {
    throw ConfigError(
        mpi_running() ? "World: MPI runs already, by the program's own MPI_Init or another World; "
                        "use World(communicator), which neither starts nor finalizes MPI"
                      : "World: MPI was finalized, and can start only once in a process; use one "
                        "World(argc, argv), or comm::run(), or MPI_Init in the program and "
                        "World(communicator) as often as wanted");
  }
  raise_descriptor_limit();
  int provided = MPI_THREAD_SINGLE;
  check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided), "MPI_Init_thread");
  if (provided < MPI_THREAD_MULTIPLE) {
    throw UnavailableError("World: MPI lacks MPI_THREAD_MULTIPLE; use an MPI library that has it");
  }
  int ranks = 0;
  check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &ranks), "MPI_Comm_size");
  check_launched_ranks(ranks, mpi_version());
  join();
}

void World::Impl::become_guest(MPI_Comm comm) {
  check_for_guest(comm);
  MPI_Comm copy = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(comm, &copy), "MPI_Comm_dup");
  duplicate = MpiComm(copy);
  // Make calls return errors. MPI's default handler would end the program's processes.
  check_mpi(MPI_Comm_set_errhandler(copy, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  guest = true;
  all = copy;
  join();
}

void World::Impl::join() {
  context->mpi = true;
  MPI_Comm_rank(all, &context->rank);
  MPI_Comm_size(all, &context->size);
  if (context->size == 1) return;
  node = MpiComm::split_by_node(all, context->rank);
  context->local_rank = node.rank();
  context->local_size = node.size();
  // All ranks of the node must have the same value of `crowded`, which decides how collectives run.
  int crowded = node_is_crowded(context->local_size) ? 1 : 0;
  check_mpi(MPI_Allreduce(MPI_IN_PLACE, &crowded, 1, MPI_INT, MPI_MAX, node.get()),
            "MPI_Allreduce");
  context->crowded = crowded != 0;
  board_memory = NodeMemory::create(node, FailureBoard::bytes(context->local_size),
                                    /*try_descriptors=*/true);
  context->peers_can_map = board_memory->peers_can_map();
  context->board = FailureBoard(board_memory->data(), context->local_rank, context->local_size);
}

std::unique_ptr<HostGroup> World::Impl::host_group(const GroupOptions& options) {
  if (context->size == 1) return make_host_group(context, MpiComm(), options);
  return make_host_group(context, MpiComm::split(all, 0, context->rank), options);
}

World::World(int, char**) : impl_(std::make_unique<Impl>()) {
  // Starting MPI takes a few hundred milliseconds, so a program without a launcher skips it.
  if (started_by_launcher()) {
    impl_->start_mpi();
  } else {
    refuse_other_launchers();
  }
}

World::World(const MpiCommunicator& communicator) : impl_(std::make_unique<Impl>()) {
  impl_->become_guest(communicator.comm);
}

World::~World() {
  // Tensors may outlive the World, and free their memory in the context.
  if (impl_->context->memory.allocated_bytes() > 0) kept_until_exit().push_back(impl_->context);
  if (!impl_->context->mpi) return;
  if (!mpi_running()) {
    log_error("World: MPI_Finalize was called before the World was destroyed; destroy it first");
    impl_->leave_alone();
    return;
  }
  if (std::uncaught_exceptions() > 0) {
    // Other ranks may wait for this one, so MPI_Finalize would never return.
    fail(ExitCode::kInternal, "an exception left the scope of the World");
  }
  const bool lost = impl_->guest && impl_->failing;
  if (!lost) {
    for (CommQueue& queue : impl_->context->queues) queue.drain();
    try {
      finish();
    } catch (...) {
      fail(std::current_exception());
    }
  }
  if (impl_->guest && impl_->failing) {
    impl_->leave_alone();
  } else {
    impl_->leave_mpi();
  }
}

void World::Impl::leave_mpi() {
  watchdog.reset();
  board_memory.reset();
  node = MpiComm();
  duplicate = MpiComm();
  if (!guest) MPI_Finalize();
}

// Ends a World that has failed in a program that started MPI itself. Keeps its shared memory until
// the process ends: peers may still write to it, and freeing an MPI window is collective.
void World::Impl::leave_alone() {
  std::vector<std::shared_ptr<void>>& kept = kept_until_exit();
  for (CommQueue& queue : context->queues) queue.cancel();
  watchdog.reset();
  if (mpi_running() && context->size > 1) meet_soon();  // other ranks wait for this one
  kept.insert(kept.end(), context->kept.begin(), context->kept.end());
  kept.push_back(std::shared_ptr<NodeMemory>(std::move(board_memory)));
  kept.push_back(std::make_shared<MpiComm>(std::move(node)));
  kept.push_back(std::make_shared<MpiComm>(std::move(duplicate)));
}

int World::rank() const {
  return impl_->context->rank;
}
int World::size() const {
  return impl_->context->size;
}
int World::local_rank() const {
  return impl_->context->local_rank;
}
int World::local_size() const {
  return impl_->context->local_size;
}
bool World::uses_mpi() const {
  return impl_->context->mpi;
}
MemoryProvider& World::memory() {
  return impl_->context->memory;
}

void World::watch(const WatchOptions& options) {
  if (size() == 1) return;
  if (options.start_s >= 0) impl_->context->signs.set_starting(options.start_s);
  impl_->watchdog.reset();
  if (options.timeout_s <= 0) return;
  const MpiComm world = MpiComm::split(impl_->all, 0, rank());
  impl_->watchdog = std::make_unique<Watchdog>(
      *impl_->context, world, impl_->node,
      Watchdog::Options{.timeout_s = options.timeout_s,
                        .lost_s = std::min(options.lost_s, options.timeout_s),
                        .ending = options.ending,
                        .reports = options.reports,
                        .fail = [impl = impl_.get()](const std::string& message, bool caused) {
                          impl->fail_from_watchdog(message, caused);
                        }});
}

void World::set_places(std::vector<std::string> places) {
  impl_->context->places.set(std::move(places));
}

void World::set_numa_nodes(std::vector<int> nodes) {
  impl_->context->numa_nodes = std::move(nodes);
}

void World::started() {
  impl_->context->signs.set_started();
}

void World::at_step(int64_t step) {
  if (impl_->watchdog != nullptr) impl_->watchdog->at_step(step);
}

void World::record(Timeline* timeline) {
  impl_->context->timeline = timeline;
  if (timeline == nullptr) return impl_->context->recent.listen({});
  impl_->context->recent.listen([timeline, rank = rank()](const RecentCollectives::Entry& entry) {
    add_slice(*timeline, entry, rank);
  });
}

Device World::device(const DeviceWish& wish) {
  return device(wish, visible_gpus());
}

Device World::device(const DeviceWish& wish, const GpuList& gpus) {
  // Lines of this text: the host, its identity, the reason for having no GPU, then the GPUs.
  std::string mine = cat(host_name(), '\n', host_identity(), '\n', gpus.why_none, '\n');
  for (const std::string& id : gpus.ids) mine += id + '\n';
  std::vector<RankGpus> ranks;
  for (const std::string& text : group()->all_gather_bytes(mine, "GPUs")) {
    std::istringstream lines(text);
    RankGpus& rank = ranks.emplace_back();
    std::getline(lines, rank.host);
    std::getline(lines, rank.host_identity);
    std::getline(lines, rank.gpus.why_none);
    for (std::string id; std::getline(lines, id);) rank.gpus.ids.push_back(id);
  }
  return choose_device(ranks, this->rank(), wish);
}

std::unique_ptr<ProcessGroup> World::group(const GroupOptions& options) {
  return impl_->host_group(options);
}

std::unique_ptr<ProcessGroup> World::group(const GroupOptions& options, DeviceBackend& device) {
  return make_device_group(impl_->context, impl_->host_group(options), device);
}

// If one rank is in MPI_Finalize when another calls MPI_Abort, mpirun can lock up (Open MPI 4.1, in
// its PMIx server). Ranks therefore meet in a barrier first, where they see failures.
void World::finish() {
  while (size() > 1 && !impl_->meet()) {
    impl_->context->board.check();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

bool World::Impl::meet() {
  if (finished) return true;
  // Enter the barrier only once. If a rank was at the end when another failed, it is already in it.
  if (meeting == MPI_REQUEST_NULL) {
    check_mpi(MPI_Ibarrier(all, &meeting), "MPI_Ibarrier");
  }
  int done = 0;
  check_mpi(MPI_Test(&meeting, &done, MPI_STATUS_IGNORE), "MPI_Test");
  finished = done != 0;
  return finished;
}

bool World::Impl::meet_soon() {
  const auto start = Clock::now();
  while (!meet()) {
    if (Clock::now() > start + kTogether) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

// Waits for failures on this node: until all ranks have failed, or until kTogether after the first
// failure.
std::vector<FailureBoard::Report> World::Impl::wait_for_others() {
  for (;;) {
    auto reports = context->board.reports();
    if (static_cast<int>(reports.size()) == context->local_size) return reports;
    int64_t first_ns = reports.front().time_ns;
    for (const auto& report : reports) first_ns = std::min(first_ns, report.time_ns);
    const auto first = Clock::time_point(std::chrono::nanoseconds(first_ns));
    if (Clock::now() > first + kTogether) return reports;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

int World::Impl::fail(ExitCode code, std::string_view message, bool caused) {
  if (watchdog != nullptr) watchdog->main_is_failing();
  if (failing.exchange(true)) {
    if (guest) return static_cast<int>(code);
    // The other thread, which is ending the run, ends this process before the sleep is over.
    std::this_thread::sleep_for(kTogether + kPatience + 2 * kAbortPatience);
    _exit(static_cast<int>(code));
  }
  return end_run(code, message, caused);
}

void World::Impl::fail_from_watchdog(const std::string& message, bool caused) {
  if (failing.exchange(true)) return;
  const int code = end_run(ExitCode::kComm, message, caused);
  if (!guest) abort_job(code);  // otherwise the board tells the main thread when it waits
}

int World::Impl::end_run(ExitCode code, std::string_view message, bool caused) {
  if (context->size == 1) {
    print_failure(message, 0, 1);
    return static_cast<int>(code);
  }
  context->board.post(static_cast<int>(code), message, caused);
  const auto reports = wait_for_others();

  // The first rank that failed by itself gives the exit code; the lowest failed rank ends the job.
  const FailureBoard::Report* first = nullptr;
  int lowest = context->local_size;
  bool silent = caused;
  for (const auto& report : reports) {
    if (report.caused) continue;
    if (first == nullptr || report.time_ns < first->time_ns) first = &report;
    lowest = std::min(lowest, report.rank);
    // If ranks refuse the same options with different messages, the lowest rank's is enough.
    const bool tells_it = tell_the_same(report.message, message) ||
                          (report.code == static_cast<int>(code) && code == ExitCode::kUsage);
    silent = silent || (report.rank < context->local_rank && tells_it);
  }
  // Several hosts may fail at once, for example after a time-out. Then only the one with the lowest
  // rank prints why.
  if (code == ExitCode::kComm && watchdog != nullptr) {
    silent = silent || watchdog->lower_rank_fails();
  }
  if (!silent) print_failure(message, context->rank, context->size);
  const int job_code = first != nullptr ? first->code : static_cast<int>(code);
  if (guest) return job_code;
  const bool all_here = static_cast<int>(reports.size()) == context->local_size;
  if (all_here && !context->requests_pending && meet_soon()) return job_code;
  if (context->local_rank != lowest) {
    std::this_thread::sleep_for(kPatience);
  } else if (job_code == static_cast<int>(ExitCode::kComm)) {
    std::this_thread::sleep_for(kReports);
  }
  abort_job(job_code);
}

int World::fail(ExitCode code, std::string_view message) {
  return impl_->fail(code, message, /*caused=*/false);
}

int World::fail(std::exception_ptr error) {
  const Failure failure = failure_of(error);
  return impl_->fail(failure.code, failure.message, is_caused(error));
}

std::string mpi_version() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  MPI_Get_library_version(text.data(), &length);
  const std::string version(text.data(), static_cast<size_t>(length));
  return version.substr(0, version.find_first_of(",\n"));
}

namespace {

// Sets the rank in process_log() during its lifetime. Not used in a program that started MPI
// itself, which may have its own ranks.
class LogRank {
 public:
  explicit LogRank(int rank) : before_(process_log().set_rank(rank)) {}
  ~LogRank() { process_log().set_rank(before_); }
  LogRank(const LogRank&) = delete;
  LogRank& operator=(const LogRank&) = delete;

 private:
  int before_;
};

int run_in(const std::function<std::unique_ptr<World>()>& make,
           const std::function<int(World&)>& body, const WatchOptions& watch) {
  std::unique_ptr<LogRank> log_rank;
  std::unique_ptr<World> world;
  try {
    world = make();
    log_rank = std::make_unique<LogRank>(world->rank());
    world->watch(watch);
    const int code = body(*world);
    world->finish();
    return code;
  } catch (...) {
    if (world != nullptr) return world->fail(std::current_exception());
    // If the World could not be made, World::fail() is not available, so report the error here.
    const Failure failure = failure_of(std::current_exception());
    print_failure(failure.message, 0, 1);
    return static_cast<int>(failure.code);
  }
}

}  // namespace

int run(int argc, char** argv, const std::function<int(World&)>& body, const WatchOptions& watch) {
  return run_in([&] { return std::make_unique<World>(argc, argv); }, body, watch);
}

int run(const MpiCommunicator& communicator, const std::function<int(World&)>& body,
        const WatchOptions& watch) {
  return run_in([&] { return std::make_unique<World>(communicator); }, body, watch);
}

}  // namespace shale::comm
