#include "shale/models/plan/plan_rank.h"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <utility>

#include "shale/base/error.h"
#include "shale/base/gpu_model.h"
#include "shale/comm/checkpoint/training_state.h"
#include "shale/comm/groups/group_simulated.h"
#include "shale/kernels/dry_run.h"
#include "shale/models/training/batch_ramp.h"
#include "shale/models/training/make_step.h"
#include "shale/models/training/report/memory_profile.h"
#include "shale/models/training/slow_links.h"
#include "shale/runtime/tensor/plan_backend.h"

namespace shale::models {
namespace {

// Number of dry-run steps. The first allocates gradients and optimizer states, the second runs with
// all of them, and the third confirms that the peak memory stays the same.
constexpr int64_t kSteps = 3;

// Number of dry-run steps if kernels are measured. The second step runs the kernels. The third
// times them: its memory has the same addresses as in the second. The fourth uses these times.
constexpr int64_t kMeasuredSteps = 4;

// Maximum bytes of a gather from all ranks that really moves its data: 16 bytes from each of 16,384
// ranks. This limit keeps plans for many ranks fast.
constexpr size_t kMostGathered = 64 * PlanBackend::kCopied;

// Step of the dry run, and the fraction of the run's steps that it represents. The dry run has the
// first steps, and then one step of each kind (step_kinds()). If there is only one kind, the last
// of the first steps represents it.
struct Rehearsed {
  int64_t step = 0;
  double share = 0;
};
std::vector<Rehearsed> rehearsed_steps(const RunConfig& config, bool measures) {
  std::vector<Rehearsed> steps;
  const int64_t first = std::min(config.steps, measures ? kMeasuredSteps : kSteps);
  for (int64_t step = 0; step < first; ++step) steps.push_back({step});
  const std::vector<StepKind> kinds = step_kinds(config);
  if (kinds.size() == 1) {
    if (!steps.empty()) steps.back().share = 1;
    return steps;
  }
  for (const StepKind& kind : kinds) steps.push_back({kind.step, kind.share});
  return steps;
}

void check_plannable(const RunConfig& config, int rank, int ranks) {
  if (rank < 0 || rank >= ranks) {
    throw ConfigError(cat("plan: rank ", rank, ", expected 0 to ", ranks - 1));
  }
  if (!config.offload_folder.empty()) {
    throw ConfigError(cat("plan: --offload nvme:", config.offload_folder,
                          " cannot be planned; plan --offload params instead: its host memory is "
                          "the size of the file"));
  }
  if (config.threads < 1)
    throw InternalError("plan: the number of threads is unknown; use --threads");
}

// Returns the device whose kernels determine the size of scratch memory. For a GPU this is the
// emulator, which has the same kernels. Throws UnavailableError in a build without the emulator.
Device device_of_kernels(const RunConfig& config) {
  if (config.device == "cpu" || config.device == "auto") return {};
  const Device device = emulated_device(config.device == "emu"    ? "emu:80"
                                        : config.device == "cuda" ? "emu:90"
                                                                  : config.device);
  static_cast<void>(make_backend(device));  // registers its kernels
  return device;
}

// Plans include validations if a batch has at most this many bytes in host memory. With larger
// batches, training needs more device memory than validation.
constexpr int64_t kMostEvaluated = int64_t{64} << 20;

int64_t bytes_of(const Batch& batch) {
  int64_t bytes = 0;
  for (const HostTensor& field : batch.fields)
    bytes += field.shape.numel() * dtype_size(field.dtype);
  return bytes;
}

// Returns a batch of `samples` samples like the one sample in `batch`. Its fields have the full
// shapes, but only the bytes that PlanBackend copies, so a batch of any size takes next to no
// memory.
Batch blank_batch(Batch batch, int64_t samples) {
  batch.count = samples;
  for (HostTensor& field : batch.fields) {
    if (__builtin_mul_overflow(field.shape[0], samples, &field.shape[0])) {
      throw ConfigError(cat("--micro-batch is ", samples, ", which does not fit 64 bits"));
    }
    const auto all = static_cast<size_t>(field.shape.numel() * dtype_size(field.dtype));
    field.bytes.resize(std::min(all, PlanBackend::kCopied));
  }
  return batch;
}

// Runs the steps of offloaded shards at once. For plans of memory, which count no time.
class UntimedStepper final : public offload::InlineStepper {
 public:
  void step(size_t, const std::function<void()>& work) override { work(); }
  void await(size_t) override {}
};

// On destruction, returns cached memory to the group that provided it, while the group still
// exists.
class ReleaseCached {
 public:
  explicit ReleaseCached(Context& context) : context_(context) {}
  ~ReleaseCached() { context_.allocator().release_cached(); }
  ReleaseCached(const ReleaseCached&) = delete;
  ReleaseCached& operator=(const ReleaseCached&) = delete;

 private:
  Context& context_;
};

// One rank of the run, set up as Trainer does it.
class Rehearsal {
 public:
  // lists_memory: record which modules hold memory at the peak, and for what.
  Rehearsal(const RunConfig& config, Task& task, int rank, int ranks, RehearsalClock* clock,
            bool lists_memory)
      : config_(config),
        task_(task),
        clock_(clock),
        context_({.threads = config.threads,
                  .device_memory = config.device_memory,
                  .deterministic = config.deterministic,
                  .tf32 = config.dtype == Precision::kTf32,
                  .seed = static_cast<uint64_t>(config.seed)},
                 std::make_unique<PlanBackend>(device_of_kernels(config),
                                               clock != nullptr && clock->measures(), clock)),
        all_(rank, ranks, context_.backend(),
             {.has_values =
                  [this](const View& shorter, const View& longer) {
                    const auto& backend = static_cast<const PlanBackend&>(context_.backend());
                    return !backend.owns(shorter.data) ||
                           (static_cast<size_t>(shorter.bytes()) <= PlanBackend::kCopied &&
                            static_cast<size_t>(longer.bytes()) <= kMostGathered);
                  },
              .late = true,
              .clock = clock}),
        data_(data_ranks(config, parallel_layout(config, ranks), rank)),
        layout_(batch_layout(config, data_.count)) {
    if (lists_memory) ledger_.emplace(context_);
    if (clock != nullptr) clock->set_compute_stream(context_.exec().stream);
    parallel_ = make_parallel(config_, all_, context_);
    const bool runs_later = context_.exec().stream != nullptr;
    step_ = make_step({.config = config_,
                       .task = task_,
                       .context = context_,
                       .parallel = *parallel_,
                       .layout = layout_,
                       .stepper = runs_later ? stepper() : nullptr},
                      clock);
    task_.prepare(task_context());
    const BatchLayout one{.global_batch = data_.count, .micro_batch = 1, .ranks = data_.count};
    task_.train_batches({.layout = one, .rank = data_.rank})(0, blank_);
    blank_ = blank_batch(std::move(blank_), layout_.micro_batch);
    if (config_.ema > 0) step_->keep_average(config_.ema);
    if (ledger_) places_.emplace(*ledger_, task_.model(), task_.units());
  }

  void run() {
    const bool measures = clock_ != nullptr && clock_->measures();
    BatchSource source = task_.train_batches({.layout = layout_, .rank = data_.rank});
    std::optional<Prefetcher> batches;
    if (measures) batches.emplace(std::move(source));
    const std::vector<Rehearsed> rehearsed = rehearsed_steps(config_, measures);
    std::optional<Context::Observation> observation, on_host;
    if (clock_ != nullptr) observation.emplace(context_, *clock_);
    if (clock_ != nullptr && step_->host_context() != nullptr) {
      on_host.emplace(*step_->host_context(), clock_->host_observer());
    }
    const bool evaluates = config_.eval_every > 0 && bytes_of(blank_) <= kMostEvaluated;
    for (const auto& [step, share] : rehearsed) {
      if (clock_ != nullptr) clock_->set_pass(pass_of(step));
      if (measures && pass_of(step) == RehearsalClock::Pass::kInPlace) end_list();
      if (ledger_) ledger_->mark(cat("step ", step + 1));
      if (clock_ != nullptr) clock_->begin_step(layout_.micro_batches(step));
      step_->run(
          {.step = step,
           .lr = static_cast<float>(config_.lr),
           .weight = measures ? task_.step_weight(step) : 1,
           .first_position = layout_.begin(step),
           .micro_batches = layout_.micro_batches(step),
           .next_batch = [&]() -> const Batch& { return batches ? *batches->next() : blank_; }});
      if (clock_ != nullptr) clock_->end_step(share);
      if (places_) places_->leave_all();
      const bool is_last = &step == &rehearsed.back().step;
      const bool is_due = is_last || (step == 0 && config_.eval_every < config_.steps);
      if (evaluates && is_due) evaluate();
    }
    step_->finish_update();
    if (clock_ != nullptr) clock_->set_pass(RehearsalClock::Pass::kAtOnce);
  }

  PlannedRank result() {
    if (ledger_ && config_.profiles_memory()) {
      write_memory_profile(config_.trace, *ledger_, cat("planned rank ", all_.rank()));
    }
    if (ledger_) at_peak_ = ledger_->at_peak();
    PlannedRank planned{.memory = {.rank = all_.rank(),
                                   .threads = config_.threads,
                                   .device = MemoryPeak(context_.allocator().stats())},
                        .place = parallel_->mesh().layout().place_of(all_.rank()),
                        .at_peak = std::move(at_peak_),
                        .batch_bytes = bytes_of(blank_)};
    const auto parts = comm::training_state(step_->parallel(), step_->optimizer());
    for (const StatePart& part : comm::share_to_write(parts, parallel_->groups())) {
      planned.checkpoint_bytes += part.values.bytes();
    }
    if (Context* host = step_->host_context()) {
      planned.memory.host = MemoryPeak(host->allocator().stats());
    }
    return planned;
  }

 private:
  RehearsalClock::Pass pass_of(int64_t step) const {
    using enum RehearsalClock::Pass;
    if (!clock_->measures() || config_.steps < kMeasuredSteps) return kAtOnce;
    constexpr std::array kPasses{kLater, kVisit, kInPlace};
    return step < std::ssize(kPasses) ? kPasses[size_t(step)] : kAtOnce;
  }

  // Ends the list of memory use before the timed steps, because a real run keeps no such list. By
  // now nearly all memory is in use.
  void end_list() {
    if (!ledger_ || config_.profiles_memory()) return;
    at_peak_ = ledger_->at_peak();
    places_.reset();
    ledger_.reset();
  }

  // Returns the object that steps offloaded shards. It runs on this thread, because only this
  // thread is in dry-run mode.
  offload::InlineStepper* stepper() {
    if (clock_ != nullptr) return clock_;
    return &untimed_stepper_;
  }

  TaskContext task_context() {
    return {.context = context_,
            .group = all_,
            .data = data_,
            .parallel = step_->parallel(),
            .loss = [this](const DeviceBatch& batch) { return step_->loss(batch); }};
  }

  void evaluate() {
    step_->finish();
    const TaskContext run = task_context();
    task_.evaluate(run);
    if (config_.ema > 0) step_->with_average([&] { task_.evaluate(run); });
    if (places_) places_->leave_all();
  }

  const RunConfig& config_;
  Task& task_;
  RehearsalClock* clock_;
  UntimedStepper untimed_stepper_;
  Context context_;
  std::optional<MemoryLedger> ledger_;
  std::vector<MemoryLedger::Share> at_peak_;
  comm::SimulatedGroup all_;
  ReleaseCached release_{context_};
  const DataRanks data_;
  const BatchLayout layout_;
  Batch blank_;  // micro-batch without values
  std::unique_ptr<comm::Parallel> parallel_;
  std::unique_ptr<TrainStep> step_;
  std::optional<ModulePlaces> places_;
};

}  // namespace

bool memory_depends_on_time(const RunConfig& config, int ranks) {
  return config.zero >= 2 && !config.no_overlap && ranks > 1;
}

PlannedRank plan_rank(const RunConfig& config, Task& task, int rank, int ranks,
                      RehearsalClock* clock, bool lists_memory) {
  check_plannable(config, rank, ranks);
  RunConfig planned = config;
  planned.batch_ramp.clear();  // steps after the batch ramp need the most memory
  if (config.device == "cuda" && config.dtype == Precision::kAuto) {
    planned.dtype = Precision::kBF16;  // what Precision::kAuto means on a GPU
  }
  const kernels::DryRun dry;
  Rehearsal rehearsal(planned, task, rank, ranks, clock, lists_memory || config.profiles_memory());
  rehearsal.run();
  return rehearsal.result();
}

}  // namespace shale::models
