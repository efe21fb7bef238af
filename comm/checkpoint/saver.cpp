#include "shale/comm/checkpoint/saver.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <limits>
#include <set>
#include <utility>

#include "shale/base/clock.h"
#include "shale/base/error.h"
#include "shale/base/host_memory.h"
#include "shale/base/host_name.h"
#include "shale/base/log.h"
#include "shale/base/stream_copy.h"
#include "shale/base/timeline.h"
#include "shale/comm/checkpoint/json_internal.h"
#include "shale/comm/checkpoint/problems.h"
#include "shale/comm/checkpoint/shard.h"
#include "shale/comm/checkpoint/shard_image.h"

namespace shale::comm {
namespace {

using Clock = std::chrono::steady_clock;

// Bytes that are copied from the device before they are passed to the writing threads. The disk
// must not wait long for them, and a wait for the device must be short compared with its copy.
constexpr int64_t kCopyBytes = int64_t{32} << 20;

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

TensorPart stored(const StatePart& part) {
  return {.tensor = part.name,
          .dtype = part.values.dtype(),
          .shape = {part.shape.begin(), part.shape.end()},
          .box = part.box,
          .first = part.first,
          .count = part.count()};
}

// Returns the record (encode_shard) of a file that is not yet written. Its checksums are zero.
std::string record_of(const std::string& file_name, const std::vector<StatePart>& share) {
  std::vector<TensorPart> parts;
  for (const StatePart& part : share) parts.push_back(stored(part));
  CheckpointManifest record = ShardPlan(file_name, std::move(parts)).record;
  CheckpointFile& file = record.files[0];
  file.chunk_crcs.resize(static_cast<size_t>((file.bytes - 1) / record.chunk_bytes + 1));
  return encode_shard(record);
}

// Copies bytes of a vector to host memory. Synchronise the vector's context to complete the copy.
void copy_to_host(const Tensor& values, int64_t begin, int64_t count, std::byte* to) {
  const std::byte* from = static_cast<const std::byte*>(values.data()) + begin;
  if (values.context().device().type == DeviceType::kCpu) {
    stream_copy(to, from, static_cast<size_t>(count));
  } else {
    values.context().copy(to, from, count);
  }
}

// Text about a failed save on this rank, to be sent to all ranks.
std::string problem_of(std::exception_ptr error, int64_t step, int rank) {
  const std::string problem = pack_problem(error);
  if (problem.empty()) return {};
  const size_t space = problem.find(' ');
  std::string code = problem.substr(0, space);
  // Input is not missing or invalid here: the destination was moved away. Report a disk error.
  for (const ExitCode gone : {ExitCode::kMissingInput, ExitCode::kData}) {
    if (code == cat(static_cast<int>(gone))) code = cat(static_cast<int>(ExitCode::kDisk));
  }
  return cat(code, " checkpoint of step ", step, ":", problem.substr(space), " (written by rank ",
             rank, ")");
}

}  // namespace

// Host memory for fast copies from the device. It grows to the largest save and is kept.
struct CheckpointSaver::Staged {
  explicit Staged(MemoryProvider& memory) : provider(memory) {}
  ~Staged() { reserve(0); }
  Staged(const Staged&) = delete;
  Staged& operator=(const Staged&) = delete;

  void reserve(int64_t count) {
    if (count > 0 && count <= bytes) return;
    if (data != nullptr) provider.free(data, static_cast<size_t>(bytes));
    data = nullptr;
    bytes = 0;
    if (count == 0) return;
    data = static_cast<std::byte*>(provider.allocate(static_cast<size_t>(count)));
    bytes = count;
  }

  MemoryProvider& provider;
  std::byte* data = nullptr;
  int64_t bytes = 0;
  std::optional<ShardPlan> plan;
  std::optional<ShardImage> image;  // writes the file from `data`
};

CheckpointSaver::CheckpointSaver(ProcessGroup& group, Context& context, std::string folder,
                                 const CheckpointSaverOptions& options)
    : group_(group),
      context_(context),
      folder_(std::move(folder)),
      options_(options),
      staged_(std::make_unique<Staged>(context.backend().host_memory())) {}

CheckpointSaver::~CheckpointSaver() {
  if (staged_->image) staged_->image->cancel();
  join();
}

void CheckpointSaver::start(std::function<void()> work) {
  error_ = nullptr;
  running_.store(true, std::memory_order_relaxed);
  thread_ = std::thread([this, work = std::move(work)] {
    try {
      work();
    } catch (...) {
      error_ = std::current_exception();
    }
    running_.store(false, std::memory_order_release);
  });
}

void CheckpointSaver::join() {
  if (thread_.joinable()) thread_.join();
}

// Checks that each host has enough memory for all its ranks, and allocates it. Without the check,
// Linux could kill a process at the first save, hours later.
void CheckpointSaver::reserve_memory(const std::vector<StatePart>& share) {
  std::vector<TensorPart> parts;
  for (const StatePart& part : share) parts.push_back(stored(part));
  const int64_t mine = ShardImage::bytes_for(
      ShardPlan(shard_file_name(group_.rank(), group_.size()), std::move(parts)));
  const int64_t available = options_.available_memory
                                ? *options_.available_memory
                                : available_host_memory().value_or(kUnlimited);
  const std::string host = host_identity();
  int64_t bytes = 0, ranks = 0;
  for (const std::string& one : group_.all_gather_bytes(cat(mine, " ", host), "memory of saves")) {
    const size_t space = one.find(' ');
    if (one.substr(space + 1) != host) continue;
    bytes += std::stoll(one.substr(0, space));
    ++ranks;
  }
  if (bytes > available) {
    const auto text = [](int64_t count) { return format_bytes(static_cast<double>(count)); };
    throw OutOfMemoryError(cat("checkpoint: saves need ", bytes, " bytes (", text(bytes),
                               ") of host memory for ", ranks, ranks == 1 ? " rank" : " ranks",
                               " of host ", host_name(), ", found ", text(available),
                               " available; use more hosts, fewer ranks per host, or --no-save"));
  }
  staged_->reserve(mine);
  std::memset(staged_->data, 0, static_cast<size_t>(mine));
}

void CheckpointSaver::check(const std::vector<StatePart>& share) {
  std::string record, problem;
  try {
    record = record_of(shard_file_name(group_.rank(), group_.size()), share);
  } catch (const Error&) {
    problem = pack_problem(std::current_exception());
  }
  problem = first_problem(group_, "checkpoint layout", problem);
  if (problem.empty()) {
    const std::vector<std::string> records = group_.gather_bytes(record, 0, "checkpoint layout");
    problem = problem_of_root(group_, "checkpoint layout", [&] {
      CheckpointManifest manifest;
      for (const std::string& one : records) add_shard(manifest, one);
      to_json(std::move(manifest));
    });
  }
  if (problem.empty()) return reserve_memory(share);
  throw ConfigError(cat("checkpoint: cannot save the state of ", group_.size(),
                        group_.size() == 1 ? " rank" : " ranks", ": ",
                        problem.substr(problem.find(' ') + 1)));
}

// Creates the temporary folders on the ranks that commit, before any rank writes to them.
void CheckpointSaver::begin() {
  nonce_ = group_.broadcast_bytes(group_.rank() == 0 ? make_checkpoint_nonce() : "", 0,
                                  "checkpoint begins");
  std::string problem;
  if (commits()) {
    try {
      folder_.begin(info_.step, nonce_);
    } catch (...) {
      problem = problem_of(std::current_exception(), info_.step, group_.rank());
    }
  }
  problem = options_.is_shared ? group_.broadcast_bytes(problem, 0, "checkpoint begins")
                               : first_problem(group_, "checkpoint begins", problem);
  throw_problem(problem);
}

std::optional<int64_t> CheckpointSaver::save(const CheckpointInfo& info,
                                             const std::vector<StatePart>& share) {
  const std::optional<int64_t> before = finish();
  info_ = info;
  begin();
  enter(Phase::kWriting);
  const auto start_of_copy = Clock::now();
  try {
    stage(share);
  } catch (...) {
    // The other ranks do not know this error yet, so all ranks throw it in poll().
    if (staged_->image) staged_->image->cancel();
    join();
    running_ = false;
    error_ = std::current_exception();
  }
  cost_.copy_s = seconds_since(start_of_copy);
  return before;
}

// Copies the parts in file order, while the writing threads write the parts already copied.
void CheckpointSaver::stage(const std::vector<StatePart>& share) {
  Staged& staged = *staged_;
  staged.image.reset();
  std::vector<TensorPart> parts;
  cost_ = {};
  for (const StatePart& part : share) {
    parts.push_back(stored(part));
    cost_.bytes += part.values.bytes();
  }
  const ShardPlan& plan =
      staged.plan.emplace(shard_file_name(group_.rank(), group_.size()), std::move(parts));
  staged.reserve(ShardImage::bytes_for(plan));
  ShardImage& image = staged.image.emplace(plan, staged.data);
  start([this] { write(); });

  int64_t copied = 0;  // bytes copied since the last wait
  std::set<Context*> contexts = {&context_};
  for (size_t i = 0; i < plan.order.size(); ++i) {
    const Tensor& values = share[plan.order[i]].values;
    contexts.insert(&values.context());
    for (int64_t done = 0, count = 0; done < values.bytes(); done += count) {
      count = std::min(kCopyBytes - copied, values.bytes() - done);
      copy_to_host(values, done, count, image.data(i) + done);
      copied += count;
      if (copied < kCopyBytes) continue;
      for (Context* context : contexts) context->synchronize();
      image.filled(plan.begins[i] + done + count);
      copied = 0;
    }
  }
  for (Context* context : contexts) context->synchronize();
  image.filled(plan.file().bytes);
}

// Runs on the writing thread.
void CheckpointSaver::write() {
  const auto begin = Clock::now();
  report_ = staged_->image->write(folder_.temporary_path(info_.step, nonce_));
  cost_.write_s = seconds_since(begin);
  record("write", begin);
}

void CheckpointSaver::record(const char* what, Clock::time_point begin) const {
  if (options_.timeline == nullptr) return;
  options_.timeline->add_slice("checkpoint", what, begin, Clock::now());
}

// Runs on the writing thread of ranks that commit.
void CheckpointSaver::commit(const std::vector<std::string>& shards) {
  const auto begin = Clock::now();
  CheckpointManifest manifest;
  manifest.step = info_.step;
  manifest.state = info_.state;
  manifest.config = info_.config;
  for (const std::string& shard : shards) add_shard(manifest, shard);
  if (options_.before_commit) options_.before_commit();
  folder_.commit(manifest, nonce_, info_.attachments);
  known_sound_.insert(info_.step);
  record("commit", begin);
  // The checkpoint is safe, so later errors must not end the run. Old checkpoints that remain only
  // cost disk space, and the next save tries again to delete them.
  try {
    if (options_.committed) options_.committed(info_.step);
    if (options_.keep > 0) {
      folder_.retire(options_.keep, info_.step, options_.spares, &known_sound_);
    }
  } catch (const Error& error) {
    log_warning("saved the checkpoint of step ", info_.step, ", then failed: ", error.what());
  }
}

void CheckpointSaver::enter(Phase phase) {
  phase_ = phase;
  ++phases_;
}

SaveProgress CheckpointSaver::progress() const {
  const bool running = running_.load(std::memory_order_acquire);
  const bool failed = !running && error_ != nullptr;
  return {.finished = running ? phases_ - 1 : phases_, .failed = failed ? phases_ : 0};
}

std::optional<int64_t> CheckpointSaver::poll() {
  if (phase_ == Phase::kIdle) return {};
  const SaveProgress mine = progress();
  std::array<int64_t, 2> all = {-mine.finished, mine.failed};
  group_.host().all_reduce_max(make_view(all.data(), {2}), {.tag = "checkpoint"});
  return advance({.finished = -all[0], .failed = all[1]});
}

std::optional<int64_t> CheckpointSaver::advance(const SaveProgress& all) {
  if (phase_ == Phase::kIdle) return {};
  if (all.failed == phases_) give_up();
  if (all.finished < phases_) return {};
  join();
  if (phase_ == Phase::kCommitting) {
    phase_ = Phase::kIdle;
    return info_.step;
  }
  constexpr const char* kTag = "checkpoint shards";
  std::vector<std::string> records = options_.is_shared ? group_.gather_bytes(report_, 0, kTag)
                                                        : group_.all_gather_bytes(report_, kTag);
  enter(Phase::kCommitting);
  if (commits()) start([this, records = std::move(records)] { commit(records); });
  return {};
}

// Handles the failure of a rank: all ranks stop writing, then the ranks that commit remove the
// folder, and all throw the error.
void CheckpointSaver::give_up() {
  const bool failed_here = progress().failed == phases_;
  if (staged_->image) staged_->image->cancel();
  join();
  const std::string problem =
      first_problem(group_, "checkpoint errors",
                    failed_here ? problem_of(error_, info_.step, group_.rank()) : std::string());
  phase_ = Phase::kIdle;
  if (commits()) {
    try {
      folder_.discard(info_.step, nonce_);
    } catch (const Error& error) {
      log_warning("checkpoint: cannot remove the unfinished checkpoint: ", error.what());
    }
  }
  throw_problem(problem);
  throw InternalError("checkpoint: a rank failed without an error");
}

std::optional<int64_t> CheckpointSaver::finish() {
  std::optional<int64_t> step;
  while (in_flight()) {
    step = poll();
    if (in_flight()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return step;
}

}  // namespace shale::comm
