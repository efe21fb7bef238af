#include "shale/models/training/trainer.h"

#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <tuple>
#include <utility>

#include "shale/base/cpu_affinity.h"
#include "shale/base/error.h"
#include "shale/base/log.h"
#include "shale/base/parse.h"
#include "shale/comm/parallel/data/replica_check.h"
#include "shale/comm/parallel/pipeline/simulate.h"
#include "shale/comm/same_on_all.h"
#include "shale/comm/watch/failure_board.h"
#include "shale/models/training/batch_ramp.h"
#include "shale/models/training/checks/bandwidth_check.h"
#include "shale/models/training/checks/gemm_peak.h"
#include "shale/models/training/checks/health_check.h"
#include "shale/models/training/make_optimizer.h"
#include "shale/models/training/output_folder.h"
#include "shale/models/training/report/tensor_histograms.h"
#include "shale/models/training/step_exchange.h"
#include "shale/models/training/stop_signals.h"
#include "shale/runtime/io/atomic_file.h"

namespace shale::models {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

int64_t host_peak_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

// Over NCCL, what the device has told by now.
double exposed_seconds(const comm::ProcessGroup& group) {
  return group.traffic().totals(comm::Traffic::kParameters).exposed_seconds +
         group.traffic().totals(comm::Traffic::kGradients).exposed_seconds;
}

// "pipeline of 2 stages, 1f1b: embedding to h.1, h.2 to head; idle 20% of a step if ..."
std::string describe(const StepPipeline& pipeline) {
  const comm::StagePlacement& place = pipeline.plan.placement();
  std::vector<comm::StageTimes> times;
  std::string text = cat("pipeline of ", place.stages(), " stages on ", place.ranks, " ranks:");
  for (const auto& [first, end] : pipeline.plan.stages) {
    comm::StageTimes time{0, 0, 0};
    for (int i = first; i < end; ++i) {
      const double cost = pipeline.pieces[static_cast<size_t>(i)].cost;
      time = {time.forward + cost, time.backward_input + cost, time.backward_weights + cost};
    }
    times.push_back(time);
    const auto name = [&](int i) { return pipeline.pieces[static_cast<size_t>(i)].name; };
    text += cat(first == 0 ? " " : ", ", name(first));
    if (end - first > 1) text += cat(" to ", name(end - 1));
  }
  const comm::Simulation run = comm::simulate(pipeline.plan.schedule, {.times = times});
  const double idle = *std::min_element(run.idle.begin(), run.idle.end());
  return cat(text, "; by its products, ranks are idle for at least ",
             static_cast<int>(std::lround(100 * idle / run.makespan)), "% of a step");
}

// The groups over which ranks exchange something, by the names of the mesh's axes.
std::vector<RankReport::Axis> axes_of(const comm::ProcessGroup& all,
                                      const comm::ShardGroups& groups) {
  std::vector<RankReport::Axis> axes = {{"all", &all}};
  if (groups.stages != nullptr) axes.push_back({"pipeline", groups.stages->group});
  if (groups.replicate != nullptr) {
    axes.push_back({"shard", groups.shard});
    axes.push_back({"replica", groups.replicate});
  }
  if (groups.reshard != nullptr) axes.push_back({"reshard", groups.reshard});
  return axes;
}

ContextOptions context_options(const RunConfig& config, comm::World& world) {
  return {.device = device_of(config, world),
          .threads = resolve_threads(config.threads, world.local_size()),
          .device_memory = config.device_memory,
          .deterministic = config.deterministic,
          .dependent_launch = config.dependent_launch,
          .seed = static_cast<uint64_t>(config.seed)};
}

}  // namespace

Trainer::Trainer(const RunConfig& config, const ConfigSpec& spec, Task& task, comm::World& world)
    : config_(config),
      world_(world),
      warnings_(world.rank()),
      task_(task),
      unit_(task.unit()),
      context_(context_options(config, world)),
      timeline_(config.trace.empty() ? nullptr : std::make_unique<Timeline>()),
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
                .decay_steps = std::max<int64_t>(config.decay_steps, 0),
                .shape = config.decay_shape},
      layout_(batch_layout(config, data_.count)),
      exchange_(*group_, data_.losses) {
  check_same_task();
  check_graphs(config_, context_.device(), *group_);
  check_device_sums(context_, *group_);
  check_bandwidth(*group_, context_, world, static_cast<double>(config_.expect_bandwidth));
  open_output();
  checkpoints_ = std::make_unique<RunCheckpoints>(config_, *group_, timeline_.get());
  if (config_.measure_peak) {
    peak_flops_ = measure_gemm_peak(context_, dtype_of_flag(config_, context_.device()));
  }
  build_step();
  ranks_ = std::make_unique<RankReport>(context_, *group_, axes_of(*group_, setup_.groups));
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
  open_report(spec);  // last: whatever refuses the run leaves what an earlier one wrote
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
  const DType dtype = dtype_of_flag(config_, context_.device());
  setup_ = parallel_setup(config_, *group_);
  const std::vector<Module*> units = task_.units();
  for (Module* unit : units) unit->set_recompute(config_.recompute);
  StepModel model{task_.model(), units,
                  [this](const DeviceBatch& batch) { return task_.loss(batch); }};
  const int64_t micro_batches = layout_.largest_batch() / (layout_.micro_batch * layout_.ranks);
  if (config_.pipeline > 1) {
    model.pipeline = parallel_pipeline(config_, task_, micro_batches, setup_);
    log_info(describe(*model.pipeline));
  }
  step_ = std::make_unique<TrainStep>(
      context_, setup_.groups, std::move(model), step_options(config_, dtype, micro_batches),
      [&](std::vector<OptimShard> shards) {
        return make_optimizer(config_, units, std::move(shards));
      },
      static_cast<StepObserver*>(this));
  task_.prepare(task_context());
  if (!checkpoints_->resumes()) task_.initialize(task_context());
  if (config_.ema > 0) step_->keep_average(config_.ema);
  for (const std::string& line : task_.summary()) log_info(line);
  log_info(world_.size(), world_.size() == 1 ? " rank on " : " ranks on ", context_.device(), " x ",
           context_.exec().threads, " threads, ", dtype_name(dtype), ", ", config_.global_batch,
           " ", unit_.samples, " a step, ",
           config_.global_batch / (config_.micro_batch * layout_.ranks), " x ", config_.micro_batch,
           " per rank, zero ", config_.zero);
  for (const BatchPhase& phase : layout_.ramp) {
    log_info(phase.global_batch, " ", unit_.samples, " a step before step ", phase.end + 1);
  }
  if (unit_.flops_per_item > 0 && !config_.measure_peak) {
    log_info(
        "mfu is not known: --measure-peak times a large product first, which it is a share of");
  }
}

// What cannot be written shows before anything else is done.
void Trainer::open_output() {
  const std::filesystem::path warnings = std::filesystem::path(config_.out) / "warnings.jsonl";
  if (!is_main()) return warnings_.open(warnings);
  make_folder(config_.out);
  lock_ = std::make_unique<OutputLock>(config_.out);
  warnings_.open(warnings);
  task_.open_output();
  progress_ = std::make_unique<Progress>(process_log());
}

void Trainer::resume(const ConfigSpec& spec) {
  const RunPosition start = checkpoints_->load(
      {.context = context_, .parallel = step_->parallel(), .optimizer = step_->optimizer()},
      describe_run(spec, config_, task_));
  done_steps_ = first_step_ = start.step;
  int64_t most = 0;  // that so many steps may have used
  if (__builtin_mul_overflow(start.step, layout_.largest_batch(), &most)) {
    throw DataError(cat("resume: ", start.step, " steps were done, which cannot be"));
  }
  layout_.origin = start.samples - layout_.samples_before(start.step);
  if (checkpoints_->resumes()) step_->resume(start.history);
  if (step_->scales_loss()) next_loss_scale_ = step_->history().loss_scale->value;
}

void Trainer::open_report(const ConfigSpec& spec) {
  if (!is_main()) return;
  report_ = std::make_unique<RunReport>(
      RunReport::Options{.out = config_.out,
                         .goes_on = checkpoints_->resumes() && checkpoints_->same_folder(),
                         .first_step = first_step_,
                         .options = spec.values(),
                         .tensorboard = config_.tensorboard,
                         .prometheus_file = config_.prometheus,
                         .prometheus_listen = config_.prometheus_listen});
  write_file_atomically((std::filesystem::path(config_.out) / "config.json").string(),
                        spec.to_json());
  checkpoints_->keep_with(*report_);
  checkpoints_->tell(RunState::kRunning, first_step_);
}

TaskContext Trainer::task_context() {
  return {.context = context_,
          .group = *group_,
          .data = data_,
          .parallel = step_->parallel(),
          .loss = [this](const DeviceBatch& batch) { return step_->loss(batch); },
          .tell =
              [this](const std::string& tag, std::string_view text) {
                if (report_ != nullptr) report_->write_text(done_steps_, tag, text);
              }};
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
  return {.step = step, .samples = layout_.begin(step), .history = step_->history()};
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
  if (config_.eval_every > 0 && (step % config_.eval_every == 0 || last)) {
    step_->finish();
    settle();
    evaluate(step);
  }
  if (config_.check_replicas > 0 && step % config_.check_replicas == 0) {
    step_->finish();
    // Of the ranks that have this rank's stage.
    comm::check_replicas(step_->parallel(), setup_.mesh->flatten({"replica", "shard"}),
                         world_.rank());
  }
  if (config_.report_every > 0 && step % config_.report_every == 0) {
    step_->finish();
    settle();
    report_ranks(step);
  }
  if (config_.tensorboard_histograms > 0 && step % config_.tensorboard_histograms == 0) {
    step_->finish_update();
    settle();
    write_histograms(step);
  }
  if (const auto news = std::exchange(save_news_, std::nullopt)) {
    checkpoints_->hear(*news, done_steps_);
  }
  if (checkpoints_->due(step) || last) save(step);
}

// What all ranks have agreed on: they come here after the same step.
ExitCode Trainer::stop(int64_t step) {
  if (trace_ != nullptr) trace_->finish();
  save(step);
  checkpoints_->finish();
  if (progress_ != nullptr) progress_->finish();
  const std::string what =
      cat("stopped after step ", done_steps_, " of ", config_.steps, ", as a signal asked for; ",
          config_.no_save ? "nothing was saved, because of --no-save"
          : step == 0     ? "there was nothing to save"
                          : "saved, to go on with --resume auto");
  log_info(what);
  checkpoints_->tell(config_.no_save ? RunState::kFailed : RunState::kSaved, done_steps_,
                     static_cast<int>(ExitCode::kInterrupted), what);
  return ExitCode::kInterrupted;
}

ExitCode Trainer::train() {
  const bool is_over = first_step_ >= config_.steps;
  if (!is_over && anyone_stops(*group_, StopSignals::received() != 0)) return stop(first_step_);
  // Where there is no step, its evaluation is the last one, unless it is in the metrics already.
  const bool known = checkpoints_->resumes() && checkpoints_->same_folder();
  if (is_over && config_.eval_every > 0 && !known) evaluate(first_step_);
  ranks_->begin();
  for (int64_t step = first_step_; step < config_.steps; ++step) {
    train_step(step);
    after_step(step + 1);
    if (stop_agreed_ && step + 1 < config_.steps) return stop(step + 1);
  }
  step_->finish();
  settle();
  if (trace_ != nullptr) trace_->finish();
  checkpoints_->finish();
  if (progress_ != nullptr) progress_->finish();
  log_info(context_.allocator().memory_summary());
  step_->drop_graphs();
  if (step_->host_context() != nullptr) {
    log_info(step_->host_context()->allocator().memory_summary());
  }
  if (group_->size() > 1) log_info(group_->traffic().summary());
  if (group_->size() > 1 && !is_over) {
    log_info(rank_table(ranks_->gather_whole_run(config_.steps)));
  }
  task_.finish(task_context());
  if (report_ != nullptr) report_->end(done_steps_);
  checkpoints_->tell(RunState::kDone, done_steps_, 0);
  return ExitCode::kOk;
}

void Trainer::train_step(int64_t step) {
  world_.at_step(step + 1);
  if (trace_ != nullptr) trace_->before_step(step);
  step_->run({.step = step,
              .lr = static_cast<float>(schedule_.at(step)),
              .weight = task_.step_weight(step),
              .first_position = layout_.begin(step),
              .micro_batches = layout_.micro_batches(step),
              .next_batch = [this]() -> const Batch& {
                const TimelineScope scope(timeline_.get(), "data");
                return *batches_->next();
              }});
}

void Trainer::begins(StepPhase phase) {
  if (trace_ != nullptr) trace_->begins(phase);
}

void Trainer::ends(StepPhase phase) {
  if (trace_ != nullptr) trace_->ends(phase);
}

void Trainer::done(const StepOutcome& outcome) {
  settle();
  told_ = Told{.outcome = outcome, .metrics = metrics_of(outcome), .is_timed = waited_s_ >= 0};
  send_news(outcome);
  // All ranks know this without a word, and the gradient is still there to be looked at.
  if (outcome.state.non_finite != 0 && !outcome.was_skipped) settle();
}

StepMetrics Trainer::metrics_of(const StepOutcome& outcome) {
  // A step that was queued before its predecessor was done began with that one's end.
  const double seconds = seconds_since(std::max(outcome.started, finished_));
  finished_ = Clock::now();
  const int64_t items = layout_.batch_at(outcome.step) * unit_.items_per_sample;
  const double rate = static_cast<double>(items) / seconds;
  StepMetrics metrics{.step = outcome.step + 1};
  metrics.grad_norm = outcome.state.grad_norm;
  metrics.lr = schedule_.at(outcome.step);
  metrics.item = unit_.items;
  metrics.items = layout_.begin(outcome.step + 1) * unit_.items_per_sample;
  metrics.items_per_s = rate;
  metrics.step_ms = seconds * 1e3;
  const double exposed_s = exposed_seconds(*group_);
  metrics.comm_exposed_ms = (exposed_s - std::exchange(exposed_s_, exposed_s)) * 1e3;
  if (config_.pipeline > 1) {
    const double bubble_s = group_->traffic().totals(comm::Traffic::kActivations).exposed_seconds;
    metrics.bubble_ms = (bubble_s - std::exchange(bubble_s_, bubble_s)) * 1e3;
  }
  if (peak_flops_ > 0) metrics.mfu = rate * unit_.flops_per_item / (peak_flops_ * world_.size());
  if (step_->scales_loss()) {
    metrics.loss_scale = outcome.state.loss_scale.value;
    loss_scale_ = std::exchange(next_loss_scale_, *metrics.loss_scale);
    metrics.skipped_steps = step_->skipped_steps();
    if (outcome.was_skipped && !outcome.was_outlier) {
      log_info("step ", outcome.step + 1,
               ": the gradient overflowed, the step was skipped; the loss scale is ",
               format_real(*metrics.loss_scale), " now");
    }
  }
  if (step_->skips_outliers()) {
    metrics.skipped_steps = step_->skipped_steps();
    metrics.outlier_steps = step_->outlier_steps();
    if (outcome.was_outlier) {
      log_info("step ", outcome.step + 1, ": the gradient's norm of ",
               format_real(outcome.state.grad_norm), " is more than ",
               format_real(config_.skip_outliers),
               " standard deviations above the mean of the last ", config_.skip_window,
               " steps, the step was skipped");
    }
  }
  metrics.device_peak_bytes = context_.allocator().stats().peak_reserved;
  metrics.host_peak_bytes = host_peak_bytes();
  return metrics;
}

// The time since the last news tells a slow rank from those that waited in it.
void Trainer::send_news(const StepOutcome& outcome) {
  const double waited_s = group_->traffic().totals().exposed_seconds;
  const double busy_s = seconds_since(told_at_) - (waited_s - waited_s_);
  told_at_ = Clock::now();
  waited_s_ = waited_s;
  exchange_.start({.losses = outcome.losses,
                   .busy_s = busy_s,
                   .stop = StopSignals::received() != 0,
                   .save = checkpoints_->news()});
}

void Trainer::settle() {
  if (!told_) return;
  Told told = *std::exchange(told_, std::nullopt);
  const StepSummary all = exchange_.take();
  if (!all.ranks_to_stop.empty()) stop_agreed_ = true;
  save_news_ = all.save;
  if (is_main() && told.is_timed) {
    for (const std::string& warning : stragglers_.look(all.busy_s)) log_warning(warning);
  }
  const int64_t step = told.outcome.step;
  told.metrics.loss = static_cast<float>(all.loss_sum / task_.step_weight(step));
  check_finite(told.outcome, told.metrics.loss);
  report(told.metrics);
  done_steps_ = step + 1;
}

// Gradients are already summed over the ranks, and so is their norm: all ranks see the same and
// stop together.
void Trainer::check_finite(const StepOutcome& outcome, float loss) {
  const bool bad_gradient = outcome.state.non_finite != 0;
  if (outcome.was_skipped || (std::isfinite(loss) && !bad_gradient)) return;
  std::string what = cat("the loss is ", loss, ranks_of_bad_losses(*group_, outcome.losses));
  if (bad_gradient) {
    what += cat(", the gradient of ", step_->parallel().first_non_finite(), " is not finite");
  }
  if (step_->scales_loss()) what += cat(", with a loss scale of ", outcome.state.loss_scale.value);
  throw NonFiniteError(cat("step ", outcome.step + 1, ": ", what,
                           "; want finite values: lower --lr, or check the data"));
}

void Trainer::evaluate(int64_t step) {
  const TimelineScope scope(timeline_.get(), "validation");
  const Clock::time_point start = Clock::now();
  step_->parallel().average_buffers();
  const Evaluation result = task_.evaluate(task_context());
  EvalMetrics metrics{.step = step,
                      .val_loss = static_cast<float>(result.loss),
                      .top_k = result.top_k,
                      .item = unit_.items,
                      .items = result.items,
                      .ms = 1e3 * seconds_since(start)};
  if (config_.evaluate_ema) {
    step_->with_average(
        [&] { metrics.ema_val_loss = static_cast<float>(task_.evaluate(task_context()).loss); });
  }
  if (report_ != nullptr) report_->write(metrics);
  log_info(format_evaluation(metrics, config_.steps));
}

void Trainer::report_ranks(int64_t step) {
  const RanksMetrics all = ranks_->gather(step);
  if (!is_main()) return;
  report_->write(all);
  for (const std::string& warning : exposed_above(all, config_.warn_exposed)) log_warning(warning);
}

// Gradients as the loss has them: before clipping, and without the scale.
void Trainer::write_histograms(int64_t step) {
  const TimelineScope scope(timeline_.get(), "histograms");
  const std::vector<Parameter*> parameters = task_.model().parameters();
  const std::vector<OptimShard>& shards = step_->parallel().shards();
  for (const auto& [what, group, scale] :
       {std::tuple{HistogramOf::kParameters, "parameters/", 1.0},
        std::tuple{HistogramOf::kGradients, "gradients/", 1 / loss_scale_}}) {
    for (const TensorHistogram& one :
         tensor_histograms(what, parameters, shards, *setup_.groups.shard, scale)) {
      if (report_ != nullptr) report_->write_histogram(step, group + one.name, one.histogram);
    }
  }
}

void Trainer::report(const StepMetrics& metrics) {
  if (!is_main()) return;
  report_->write(metrics);
  progress_->update({.step = metrics.step,
                     .total_steps = config_.steps,
                     .loss = metrics.loss,
                     .item = unit_.item,
                     .items_per_s = metrics.items_per_s,
                     .mfu = metrics.mfu,
                     .memory_bytes = metrics.device_peak_bytes});
}

}  // namespace shale::models
