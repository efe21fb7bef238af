#include "shale/bench/support/simulated_run.h"

#include <sys/inotify.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "shale/base/clock.h"
#include "shale/base/error.h"
#include "shale/comm/checkpoint/shard.h"
#include "shale/comm/checkpoint/training_state.h"
#include "shale/comm/parallel/data/full_state.h"
#include "shale/runtime/data/tokens/batches.h"
#include "shale/runtime/optim/optimizer.h"

namespace shale::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kLength = 8;  // tokens of a micro-batch
constexpr int64_t kVocab = 256;

models::LanguageModelConfig model_config(const SimulatedJob& job) {
  return {.layers = job.layers, .width = job.width, .heads = job.width / 64, .context = kLength};
}

models::StepOptions step_options(const SimulatedJob& job) {
  models::StepOptions options{.clip = 1};
  options.parallel.stage = job.stage;
  return options;
}

Batch batch_of_tokens() {
  Batch batch{.count = 1};
  const TokenBatch tokens(batch, 1, kLength);
  for (int64_t i = 0; i < kLength; ++i) {
    tokens.inputs[static_cast<size_t>(i)] = static_cast<int32_t>(i * 7 % kVocab);
    tokens.targets[static_cast<size_t>(i)] = static_cast<int32_t>((i + 1) * 7 % kVocab);
  }
  return batch;
}

}  // namespace

SimulatedRank::SimulatedRank(const SimulatedJob& job, int rank)
    : job_(job),
      context_({.threads = 1}),
      group_(rank, job.ranks, context_.backend()),
      model_(models::make_language_model(model_config(job))),
      step_(std::make_unique<models::TrainStep>(
          context_, comm::ShardGroups{.shard = &group_},
          models::StepModel{*model_, model_->blocks(),
                            [this](const DeviceBatch& batch) {
                              return model_->loss(batch["inputs"], batch["targets"]);
                            }},
          step_options(job),
          [](std::vector<OptimShard> shards) {
            return std::make_unique<optim::AdamW>(std::move(shards), optim::AdamWOptions{});
          })),
      exchange_(group_) {}

SimulatedRank::~SimulatedRank() = default;

template <typename Body>
SimulatedCost SimulatedRank::cost_of(const Body& body) {
  group_.reset();
  const auto start = Clock::now();
  const LockTotals before = locks_of_this_thread();
  SimulatedCost cost;
  body(cost);
  const LockTotals after = locks_of_this_thread();
  cost.locks = {.taken = after.taken - before.taken, .seconds = after.seconds - before.seconds};
  cost.seconds = seconds_since(start);
  cost.traffic = group_.total();
  return cost;
}

SimulatedCost SimulatedRank::step() {
  return cost_of([&](SimulatedCost&) {
    const Batch batch = batch_of_tokens();
    step_->run({.step = steps_++,
                .lr = 1e-3f,
                .weight = double(job_.ranks * kLength),
                .next_batch = [&]() -> const Batch& { return batch; }});
    step_->finish();
    if (steps_ > 1) exchange_.take();
    exchange_.start({.losses = {0}});
  });
}

SimulatedCost SimulatedRank::save(const std::string& folder) {
  CheckpointFolder(folder).begin(steps_,
                                 "");  // in a real run rank 0 makes the folder for all ranks
  SimulatedCost cost = cost_of([&](SimulatedCost&) {
    const auto parts = comm::training_state(step_->parallel(), step_->optimizer());
    comm::CheckpointSaver saver(group_, context_, folder, {});
    saver.save({.step = steps_}, share_to_write(parts, step_->parallel().shared().groups));
    // In a real run the ranks learn of a save's progress once per step. finish() would poll every
    // millisecond, so the count would depend on the speed of the disk.
    while (saver.in_flight()) {
      saver.advance(saver.progress());
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  CheckpointFolder(folder).discard(steps_, "");
  return cost;
}

SimulatedCost SimulatedRank::resume(const std::string& checkpoint) {
  if (group_.rank() != 0) {  // in a real run rank 0 reads the manifest for all ranks
    group_.set_broadcast("manifest", read_manifest_text(Folder::open(checkpoint)));
  }
  OpenCount opens(checkpoint);
  return cost_of([&](SimulatedCost& cost) {
    CheckpointReader reader = comm::open_checkpoint(group_, checkpoint);
    comm::load_training_state(reader, step_->parallel(), step_->optimizer());
    cost.opens = opens.take();
  });
}

SimulatedCost SimulatedRank::export_weights() {
  return cost_of([&](SimulatedCost&) {
    comm::FullState state(step_->parallel(), /*root=*/0);
    for (const Parameter* parameter : model_->parameters()) state.read(*parameter);
  });
}

SimulatedCost SimulatedRank::load_weights() {
  return cost_of([&](SimulatedCost& cost) {
    step_->parallel().load([&](const Parameter&, int64_t, const View& to) {
      cost.read += to.numel();
      std::memset(to.data, 0, static_cast<size_t>(to.bytes()));
    });
  });
}

std::string SimulatedRank::write_file(const std::string& folder) {
  const auto state = comm::training_state(step_->parallel(), step_->optimizer());
  const auto share = share_to_write(state, step_->parallel().shared().groups);
  std::vector<TensorPart> parts;
  for (const StatePart& part : share) {
    parts.push_back({.tensor = part.name,
                     .dtype = part.values.dtype(),
                     .shape = {part.shape.begin(), part.shape.end()},
                     .first = part.first,
                     .count = part.count()});
  }
  CheckpointShardWriter writer(folder, shard_file_name(group_.rank(), group_.size()), parts);
  while (!writer.is_complete()) {
    const Tensor& values = share[writer.next()].values;
    writer.write({static_cast<const std::byte*>(values.data()), size_t(values.bytes())});
  }
  return writer.finish();
}

int64_t SimulatedRank::gathered_elements() const {
  int64_t elements = 0;
  for (const auto& unit : step_->parallel().units()) {
    for (const auto& buffer : unit->buffers()) elements += buffer->layout().numel;
  }
  return elements;
}

int64_t SimulatedRank::model_elements() const {
  int64_t elements = 0;
  for (const Parameter* parameter : model_->parameters()) elements += parameter->numel();
  return elements;
}

SimulatedCheckpoint write_checkpoint(const SimulatedJob& job, const std::string& checkpoints) {
  const CheckpointFolder folder(checkpoints);
  const std::string nonce = make_checkpoint_nonce();
  folder.begin(1, nonce);
  SimulatedCheckpoint result{.path = folder.path_of(1)};
  std::vector<std::string> records;
  for (int rank = 0; rank < job.ranks; ++rank) {
    records.push_back(SimulatedRank(job, rank).write_file(folder.temporary_path(1, nonce)));
    result.record_bytes += static_cast<int64_t>(records.back().size());
  }
  const auto start = Clock::now();
  CheckpointManifest manifest;
  manifest.step = 1;
  for (const std::string& record : records) add_shard(manifest, record);
  const std::string text = to_json(manifest);
  result.join_s = seconds_since(start);
  result.manifest_bytes = static_cast<int64_t>(text.size());
  // Each value in the manifest is an item of a list or object, and follows one of these characters.
  for (const char c : text) result.manifest_values += c == ',' || c == '[' || c == '{' ? 1 : 0;
  folder.commit(manifest, nonce);
  return result;
}

OpenCount::OpenCount(const std::string& folder) : fd_(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC)) {
  // Watch closes too, because inotify merges consecutive equal events.
  if (fd_ >= 0 && ::inotify_add_watch(fd_, folder.c_str(), IN_OPEN | IN_CLOSE) >= 0) return;
  const int error = errno;
  if (fd_ >= 0) ::close(fd_);
  throw DiskError(cat(folder, ": opens cannot be counted: ", std::strerror(error)));
}

OpenCount::~OpenCount() {
  ::close(fd_);
}

int64_t OpenCount::take() {
  int64_t opens = 0;
  alignas(inotify_event) std::array<char, 1 << 16> events;
  for (ssize_t bytes = 0; (bytes = ::read(fd_, events.data(), events.size())) > 0;) {
    for (ssize_t at = 0; at < bytes;) {
      const auto* event = reinterpret_cast<const inotify_event*>(events.data() + at);
      if ((event->mask & IN_Q_OVERFLOW) != 0) throw InternalError("opens: inotify lost events");
      if ((event->mask & IN_OPEN) != 0 && (event->mask & IN_ISDIR) == 0) ++opens;
      at += static_cast<ssize_t>(sizeof(inotify_event)) + event->len;
    }
  }
  return opens;
}

}  // namespace shale::bench
