#include "shale/models/training/trainer.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <utility>

#include "shale/base/cpu_affinity.h"
#include "shale/base/error.h"
#include "shale/base/gpu_model.h"
#include "shale/base/log.h"
#include "shale/base/parse.h"
#include "shale/comm/parallel/data/replica_check.h"
#include "shale/comm/same_on_all.h"
#include "shale/comm/watch/failure_board.h"
#include "shale/models/training/batch_ramp.h"
#include "shale/models/training/checks/bandwidth_check.h"
#include "shale/models/training/checks/gemm_peak.h"
#include "shale/models/training/checks/health_check.h"
#include "shale/models/training/checks/kernel_choice.h"
#include "shale/models/training/make_step.h"
#include "shale/models/training/numa_setup.h"
#include "shale/models/training/output_folder.h"
#include "shale/models/training/step_exchange.h"
#include "shale/models/training/stop_signals.h"
#include "shale/runtime/io/atomic_file.h"

namespace shale::models {
namespace {

// Returns the process groups of the parallel axes, with the names that reports use.
std::vector<RankReport::Axis> axes_of(const comm::ProcessGroup& all,
                                      const comm::Parallel& parallel) {
  const comm::ShardGroups& groups = parallel.groups();
  std::vector<RankReport::Axis> axes = {{"all", &all}};
  if (groups.stages != nullptr) axes.push_back({"pipeline", groups.stages->group});
  const int sharing = groups.shard->size();
  if (sharing > 1 && sharing < all.size()) axes.push_back({"shard", groups.shard});
  if (groups.replicate != nullptr) axes.push_back({"replica", groups.replicate});
  if (groups.reshard != nullptr) axes.push_back({"reshard", groups.reshard});
  if (groups.tensor != nullptr) axes.push_back({"tensor", groups.tensor});
  if (parallel.tokens() != nullptr) axes.push_back({"context", parallel.tokens()});
  if (parallel.rows() != nullptr) axes.push_back({"expert", parallel.rows()});
  return axes;
}

// Returns true if forward changes values of the model that checkpoints contain.
bool keeps_statistics(const Module& model) {
  const std::vector<Buffer*> buffers = model.buffers();
  return std::any_of(buffers.begin(), buffers.end(),
                     [](const Buffer* buffer) { return buffer->ranks == BufferRanks::kMean; });
}

// Returns "cpu", or "cuda" with the compute capability: "cuda 9.0".
std::string device_text(const Device& device) {
  const std::string type = to_string(device.type);
  return device.arch == 0 ? type : cat(type, " ", capability_text(device.arch));
}

ContextOptions context_options(const RunConfig& config, comm::World& world) {
  const Device device = device_of(config, world);
  set_up_numa_nodes(config, device, world);
  return {.device = device,
          .threads = resolve_threads(config.threads, world.local_size()),
          .device_memory = config.device_memory,
          .deterministic = config.deterministic,
          .tf32 = config.dtype == Precision::kTf32,
          .seed = static_cast<uint64_t>(config.seed)};
}

}  // namespace

Trainer::Trainer(const RunConfig& config, const ConfigSpec& spec, Task& task, comm::World& world,
                 const TrainerCheck& check)
    : config_(config),
      world_(world),
      warnings_(world.rank()),
      task_(task),
      unit_(task.unit()),
      parameters_(task.parameters()),
      context_(context_options(config, world)),
      timeline_(config.trace.empty() || config.profiles_memory() ? nullptr
                                                                 : std::make_unique<Timeline>()),
      group_(world.group({.timeout_s = config.timeout_s,
                          .tracer = timeline_.get(),
                          .transport = config.transport,
                          .deterministic = config.deterministic},
                         context_.backend())),
      data_(data_ranks(config, parallel_layout(config, world.size()), world.rank())),
      schedule_{.decay = config.schedule,
                .lr = config.lr,
                .min_lr = config.min_lr,
                .warmup_steps = config.warmup_steps,
                .total_steps = config.steps,
                .decay_steps = std::max<int64_t>(config.decay_steps, 0)},
      layout_(batch_layout(config, data_.count)),
      stragglers_(straggler_options(config, parallel_layout(config, world.size()))),
      exchange_(*group_, data_.losses),
      votes_(*group_, context_) {
  world.set_places(places_of(config, parallel_layout(config, world.size())));
  if (config.warmup_steps < 0) {
    throw InternalError("Trainer: expected options after resolve() and resolve_steps()");
  }
  check_same_task();
  check_cores(world, context_.device());
  check_learning_rate(config_, world);
  if (config.numa_ranks > 1 && group_->backend() == "nccl") {
    throw ConfigError(
        "--numa-ranks above 1 is incompatible with NCCL, which chooses the paths between GPUs "
        "itself; use --comm mpi");
  }
  check_graphs(config_, context_.device(), *group_);
  dtype_of_flag(config_.dtype, context_.device());  // throws if the device does not support --dtype
  check_fp8(config_, context_.device());
  check_device_sums(context_, *group_);
  left_out_ = choose_kernels(context_, *group_, config.timeout_s);
  check_bandwidth(*group_, context_, world);
  if (check != nullptr) check(task_, context_, *group_);
  open_output();
  checkpoints_ = std::make_unique<RunCheckpoints>(config_, world, *group_, timeline_.get());
  if (checkpoints_->has_own_folder()) lock_ = std::make_unique<OutputLock>(config_.out);
  if (lock_ != nullptr) checkpoints_->before_commit([this] { lock_->check(); });
  if (context_.device().type == DeviceType::kCuda) {
    peak_flops_ = measure_gemm_peak(context_, dtype_of_flag(config_.dtype, context_.device()));
  }
  build_step();
  ranks_ = std::make_unique<RankReport>(context_, *group_, axes_of(*group_, *parallel_),
                                        GpuSensors::of(context_.device()),
                                        NcclTime::of(context_.device()));
  resume(spec);
  batches_ = std::make_unique<Prefetcher>(
      task_.train_batches({.layout = layout_, .rank = data_.rank, .first_step = first_step_}),
      PrefetchOptions{.depth = config_.workers + 1, .workers = config_.workers});
  if (config_.eval_every > 0) task_.check_evaluation();
  if (timeline_ != nullptr) {
    trace_ = std::make_unique<StepTrace>(StepTrace::Options{.file = config_.trace,
                                                            .steps = config_.trace_steps,
                                                            .first_step = first_step_,
                                                            .total_steps = config_.steps},
                                         *timeline_, context_, world_, *group_, task_.model(),
                                         task_.units());
  }
  open_report(spec);  // must be last: an earlier error leaves the files of an earlier run unchanged
}

Trainer::~Trainer() {
  group_->host().on_failure({});
}

void Trainer::check_same_task() {
  for (const auto& [name, value] : task_.same_on_all_ranks()) {
    comm::require_same_on_all(*group_, name, value);
  }
  for (const auto& [name, value] : task_.data_checksums()) {
    comm::require_same_on_all(*group_, name + " checksum", value);
  }
}

void Trainer::build_step() {
  memory_ = std::make_unique<MemoryReport>(
      context_, is_main() && config_.profiles_memory() ? config_.trace : std::string());
  parallel_ = make_parallel(config_, *group_, context_);
  step_ = make_step({.config = config_,
                     .task = task_,
                     .context = context_,
                     .parallel = *parallel_,
                     .layout = layout_},
                    this);
  task_.prepare(task_context());
  if (!checkpoints_->resumes()) task_.initialize(task_context());
  if (config_.ema > 0) step_->keep_average(config_.ema);
  drops_steps_ = !keeps_statistics(task_.model());
  if (config_.skip_non_finite > 0 && !drops_steps_) {
    throw ConfigError(
        "--skip-non-finite is incompatible with batch norm: its running statistics keep the values "
        "of the skipped step; leave it out");
  }
  memory_->watch(task_.model(), task_.units());
  for (const std::string& line : task_.summary()) log_info(printable(line));
  const DType dtype = dtype_of_flag(config_.dtype, context_.device());
  log_info(world_.size(), world_.size() == 1 ? " rank on " : " ranks on ", context_.device(), " x ",
           context_.exec().threads, " threads, ", dtype_name(dtype), ", zero ", config_.zero);
  const int64_t micro_batches = config_.global_batch / (config_.micro_batch * layout_.ranks);
  log_info(config_.global_batch, " ", unit_.samples, " a step, on each rank ", micro_batches,
           micro_batches == 1 ? " micro-batch of " : " micro-batches of ", config_.micro_batch);
  if (const comm::Degrees& degrees = parallel_->degrees(); degrees.here() > 1) {
    log_info("each process runs ", degrees.here(), " mesh ranks in turn: ", degrees.tensor_here,
             " of the ", degrees.tensor, " tensor ranks x ", degrees.context_here, " of the ",
             degrees.context, " context ranks");
  }
  if (const DeviceBackend& backend = context_.backend();
      context_.device().type == DeviceType::kCuda && world_.local_rank() == 0 &&
      driver_compiles(backend.device(), backend.kernel_arch())) {
    log_warning(kernels_text(backend.device(), backend.kernel_arch()));
  }
  for (const BatchPhase& phase : layout_.ramp) {
    log_info(phase.global_batch, " ", unit_.samples, " a step before step ", phase.end + 1);
  }
}

// Makes the folders before the model is built, so that unwritable ones are reported early.
void Trainer::open_output() {
  if (!is_main()) return;
  make_folder(config_.out);
  lock_ = std::make_unique<OutputLock>(config_.out);
  task_.open_output();
  progress_ = std::make_unique<Progress>(process_log());
}

void Trainer::resume(const ConfigSpec& spec) {
  const RunTensors tensors = {
      .context = context_, .parallel = step_->parallel(), .optimizer = step_->optimizer()};
  RunDescription run = describe_run(spec, config_, task_);
  add_left_out(run, left_out_);
  const RunPosition start = checkpoints_->load(tensors, std::move(run));
  if (!checkpoints_->resumes() && !config_.optimizer_from.empty()) {
    step_->resume(checkpoints_->load_optimizer(tensors));
  }
  done_steps_ = first_step_ = start.step;
  validations_ = start.validations;
  int64_t most = 0;  // maximum number of samples that the steps done can have used
  if (__builtin_mul_overflow(start.step, layout_.largest_batch(), &most)) {
    throw DataError(cat("resume: ", start.step,
                        " steps and more samples than fit 64 bits; the checkpoint is not valid"));
  }
  layout_.origin = start.samples - layout_.samples_before(start.step);
  skip_samples();
  if (checkpoints_->resumes()) step_->resume(start.history);
  if (step_->scales_loss()) accounts_.next_loss_scale(step_->history().loss_scale->value);
}

void Trainer::skip_samples() {
  const auto skipped = parse_sample_range(config_.skip_samples);
  if (!skipped) return;
  const auto step = layout_.skip(skipped->first, skipped->second, first_step_, config_.steps);
  if (step) {
    log_info("samples ", skipped->first, " to ", skipped->second, " are not used: step ", *step + 1,
             " begins with sample ", layout_.begin(*step) + 1);
  } else {
    log_info("--skip-samples ", config_.skip_samples, ": this part of the run uses none of them");
  }
}

void Trainer::open_report(const ConfigSpec& spec) {
  warnings_.open((std::filesystem::path(config_.out) / "warnings.jsonl").string());
  if (!is_main()) return;
  report_ = std::make_unique<RunReport>(
      RunReport::Options{.out = config_.out,
                         .goes_on = checkpoints_->resumes() && checkpoints_->same_folder(),
                         .first_step = first_step_,
                         .ranks = world_.size(),
                         .device = device_text(context_.device()),
                         .parameters = parameters_,
                         .options = spec.values(),
                         .tensorboard = config_.tensorboard,
                         .prometheus = config_.prometheus});
  write_file_atomically((std::filesystem::path(config_.out) / "config.json").string(),
                        spec.to_json());
  checkpoints_->keep_with(*report_);
  checkpoints_->tell(RunState::kRunning, first_step_);
}

TaskContext Trainer::task_context() {
  TaskContext run{.context = context_,
                  .group = *group_,
                  .data = data_,
                  .parallel = step_->parallel(),
                  .loss = [this](const DeviceBatch& batch) { return step_->loss(batch); }};
  run.with_average = [this](const std::function<void()>& use) {
    if (config_.ema == 0) return use();
    step_->with_average(use);
  };
  run.tell = [this](const std::string& tag, std::string_view text) {
    if (report_ != nullptr) report_->write_text(done_steps_, tag, text);
  };
  if (report_ != nullptr && config_.tensorboard) {
    run.show = [this](const std::string& tag, const Image& picture) {
      report_->write_image(done_steps_, tag, picture);
    };
  }
  return run;
}

ExitCode Trainer::run() {
  group_->host().on_failure([this](int code, const std::string& message) {
    if (is_main()) warnings_.write(LogLevel::kError, message);
    checkpoints_->tell_failure(done_steps_, code, message);
  });
  try {
    return train();
  } catch (const comm::PeerFailure& error) {
    checkpoints_->tell_failure(done_steps_, error.job_code(), error.what());
    throw;
  } catch (const Error& error) {
    warnings_.write(LogLevel::kError, error.what());
    checkpoints_->tell_failure(done_steps_, static_cast<int>(error.code()), error.what());
    if (report_ != nullptr) report_->end_failed(done_steps_);
    throw;
  }
}

RunPosition Trainer::position(int64_t step) const {
  return {.step = step,
          .samples = layout_.begin(step),
          .history = step_->history(),
          .validations = validations_};
}

void Trainer::save(int64_t step) {
  const TimelineScope scope(timeline_.get(), "checkpoint");
  step_->finish_update();
  settle();
  step_->parallel().average_buffers();
  checkpoints_->save(position(step));
}

void Trainer::after_step(int64_t step) {
  const bool last = step == config_.steps;
  if (last) step_->finish_local_steps(step);
  if (config_.eval_every > 0 && (step % config_.eval_every == 0 || last)) {
    step_->finish();
    settle();
    evaluate(step);
    if (!last && out_of_patience()) step_->finish_local_steps(step);
  }
  if (config_.check_replicas > 0 && step % config_.check_replicas == 0) {
    step_->finish();
    // Compares ranks of the same pipeline stage.
    step_->with_anchors([&] {
      comm::check_replicas(step_->parallel(),
                           parallel_->mesh().flatten({"replica", "shard", "context"}),
                           world_.rank());
    });
  }
  if (config_.report_every > 0 && step % config_.report_every == 0) {
    step_->finish();
    settle();
    report_ranks(step);
  }
  if (const auto news = std::exchange(save_news_, std::nullopt)) {
    checkpoints_->hear(*news, done_steps_);
  }
  if (checkpoints_->due(step, validations_.best_step) || last || out_of_patience()) save(step);
}

// Saves and ends the run. All ranks call it after the same step.
ExitCode Trainer::stop(int64_t step) {
  if (trace_ != nullptr) trace_->finish();
  memory_->end_profile();
  save(step);
  checkpoints_->finish();
  if (progress_ != nullptr) progress_->finish();
  const std::string what =
      cat("stopped after step ", done_steps_, " of ", config_.steps, " on a signal; ",
          config_.no_save ? "nothing was saved, because of --no-save"
          : step == 0     ? "there was nothing to save"
                          : "saved; use --resume auto to continue");
  log_info(what);
  checkpoints_->tell(config_.no_save ? RunState::kFailed : RunState::kSaved, done_steps_,
                     static_cast<int>(ExitCode::kInterrupted), what);
  return ExitCode::kInterrupted;
}

ExitCode Trainer::train() {
  const bool is_over = first_step_ >= config_.steps || out_of_patience();
  // A run without remaining steps only evaluates. It skips that if its metrics already have this
  // evaluation.
  const bool known = checkpoints_->resumes() && checkpoints_->same_folder();
  if (is_over && config_.eval_every > 0 && !known) evaluate(first_step_);
  ranks_->begin();
  const auto begin = std::chrono::steady_clock::now();
  for (int64_t step = first_step_; step < config_.steps && !out_of_patience(); ++step) {
    if (stops_before(/*micro=*/0) || !train_step(step)) return stop(step);
    after_step(step + 1);
    if (step == first_step_) world_.started();
  }
  step_->finish();
  settle();
  const std::chrono::duration<double> run_s = std::chrono::steady_clock::now() - begin;
  if (trace_ != nullptr) trace_->finish();
  checkpoints_->finish();
  if (progress_ != nullptr) progress_->finish();
  memory_->end_profile();
  memory_->write(config_.out, *group_, step_->host_context());
  if (!is_over) report_data_wait(run_s.count());
  log_info(context_.allocator().memory_summary());
  step_->drop_graphs();
  if (step_->host_context() != nullptr) {
    log_info(step_->host_context()->allocator().memory_summary());
  }
  if (group_->size() > 1) log_info(group_->traffic().summary());
  if (group_->size() > 1 && !is_over) {
    log_info(rank_table(ranks_->gather_whole_run(done_steps_)));
  }
  step_->with_anchors([this] { task_.finish(task_context()); });
  if (report_ != nullptr) report_->end(done_steps_);
  report_end(run_s.count());
  checkpoints_->check_after_save();
  checkpoints_->tell(RunState::kDone, done_steps_, 0);
  return ExitCode::kOk;
}

bool Trainer::train_step(int64_t step) {
  world_.at_step(step + 1);
  if (trace_ != nullptr) trace_->before_step(step);
  memory_->begin_step(step - first_step_);
  StepInput input{.step = step,
                  .lr = static_cast<float>(schedule_.at(step)),
                  .weight = task_.step_weight(step),
                  .first_position = layout_.begin(step),
                  .micro_batches = layout_.micro_batches(step),
                  .next_batch = [this]() -> const Batch& { return next_batch(); }};
  if (drops_steps_) input.drops = [this](int64_t micro) { return stops_before(micro); };
  return step_->run(input);
}

bool Trainer::stops_before(int64_t micro) {
  stop_agreed_ = stop_agreed_ || votes_.stops(micro, StopSignals::received() != 0);
  return stop_agreed_;
}

// Returns a tracer that shows phases in the device's profiler. Null: there is none, or --trace is
// recording.
Tracer* Trainer::ranges() {
  const bool traced = timeline_ != nullptr && timeline_->is_recording();
  return traced ? nullptr : context_.backend().tracer();
}

void Trainer::begins(StepPhase phase) {
  if (trace_ != nullptr) trace_->begins(phase);
  if (Tracer* const shown = ranges()) shown->enter(phase_name(phase));
}

void Trainer::ends(StepPhase phase) {
  if (Tracer* const shown = ranges()) shown->leave();
  if (trace_ != nullptr) trace_->ends(phase);
}

void Trainer::done(const StepOutcome& outcome) {
  settle();
  if (!outcome.was_skipped) non_finite_in_a_row_ = 0;
  if (outcome.was_non_finite) ++non_finite_in_a_row_;
  told_ = Told{.outcome = outcome,
               .metrics = metrics_of(outcome),
               .is_timed = accounts_.knows_busy_seconds()};
  send_news(outcome, *told_->metrics.step_ms);
  // Settles the step now, while its gradient still exists. All ranks do so, because they have the
  // same gradient norm.
  const bool is_used_up = outcome.was_non_finite && non_finite_in_a_row_ > config_.skip_non_finite;
  if (outcome.state.non_finite != 0 && (!outcome.was_skipped || is_used_up)) settle();
}

}  // namespace shale::models
