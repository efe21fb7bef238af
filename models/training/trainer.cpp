#include "shale/models/training/trainer.h"

#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "shale/base/cpu_affinity.h"
#include "shale/base/error.h"
#include "shale/base/log.h"
#include "shale/comm/ordered_sum.h"
#include "shale/comm/parallel/data/replica_check.h"
#include "shale/comm/same_on_all.h"
#include "shale/models/generate.h"
#include "shale/models/hf_folder.h"
#include "shale/models/training/checks/bandwidth_check.h"
#include "shale/models/training/checks/gemm_peak.h"
#include "shale/models/training/make_optimizer.h"
#include "shale/models/training/output_folder.h"
#include "shale/models/training/step_exchange.h"
#include "shale/models/training/stop_signals.h"
#include "shale/runtime/autograd/tape.h"

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

DatasetSplits open_data(const TrainConfig& config) {
  return open_dataset({.path = config.data,
                       .format = config.data_format,
                       .val_fraction = config.val_fraction,
                       .vocab_size = config.vocab});
}

ContextOptions context_options(const TrainConfig& config, comm::World& world) {
  return {.device = device_of(config, world),
          .threads = resolve_threads(config.threads, world.local_size()),
          .device_memory = config.device_memory,
          .deterministic = config.deterministic,
          .dependent_launch = config.dependent_launch,
          .seed = static_cast<uint64_t>(config.seed)};
}

// " (on rank 1, 3)": those whose own part of the loss is not finite. Collective.
std::string ranks_of_bad_losses(comm::ProcessGroup& group, const std::vector<double>& losses) {
  const bool bad =
      !std::all_of(losses.begin(), losses.end(), [](double loss) { return std::isfinite(loss); });
  const std::vector<std::string> all = group.all_gather_bytes(bad ? "bad" : "", "losses");
  std::string ranks;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (!all[rank].empty()) ranks += cat(ranks.empty() ? " (on rank " : ", ", rank);
  }
  return ranks.empty() ? ranks : ranks + ")";
}

}  // namespace

Trainer::Trainer(const TrainConfig& config, comm::World& world)
    : config_(config),
      world_(world),
      data_(open_data(config)),
      context_(context_options(config, world)),
      group_(world.group({.timeout_s = config.timeout_s,
                          .transport = config.transport,
                          .deterministic = config.deterministic},
                         context_.backend())),
      layout_{.global_batch = config.global_batch,
              .micro_batch = config.micro_batch,
              .ranks = world.size()} {
  check_same_data();
  check_graphs(config_, context_.device(), *group_);
  check_bandwidth(*group_, context_, world, static_cast<double>(config.expect_bandwidth));
  open_output();
  checkpoints_ = std::make_unique<RunCheckpoints>(config_, *group_);
  if (config_.measure_peak) {
    peak_flops_ = measure_gemm_peak(context_, dtype_of_flag(config_, context_.device()));
  }
  build_host_tier();
  build_model();
  build_optimizer();
  resume();
  open_metrics();
  results_ = std::make_unique<StepResults>(context_, layout_.micro_batches());
  micro_batches_ = std::make_unique<MicroBatches>(
      context_, *model_, *parallel_, activation_offload_.get(),
      MicroBatches::Options{
          .rows = config_.micro_batch, .seq_len = config_.seq_len, .graphs = config_.cuda_graph});
  batches_ = std::make_unique<Prefetcher>(train_batches(
      {.tokens = data_.train,
       .sampler = TrainSampler(data_.train->size(), config_.seq_len, uint64_t(config_.seed)),
       .layout = layout_,
       .rank = world_.rank(),
       .first_step = first_step_}));
  if (config_.eval_every > 0) prepare_evaluation();
  if (config_.sample_tokens > 0) static_cast<void>(prompt());  // an error belongs before training
}

Trainer::~Trainer() = default;

void Trainer::check_same_data() {
  comm::require_same_on_all(
      *group_, cat("data: ", config_.data),
      cat(data_.train->size(), " tokens (fingerprint ", data_.fingerprint, ")"));
}

void Trainer::build_host_tier() {
  if (config_.offload == OffloadKind::kNone && !config_.offload_activations) return;
  host_tier_ = std::make_unique<offload::HostTier>(
      context_, offload::HostTierOptions{.threads = context_.exec().threads});
  if (config_.offload_activations) {
    activation_offload_ = std::make_unique<offload::ActivationOffload>(*host_tier_);
  }
}

void Trainer::build_model() {
  const DType dtype = dtype_of_flag(config_, context_.device());
  std::unique_ptr<HfFolder> init;
  if (!config_.init.empty()) init = std::make_unique<HfFolder>(config_.init);
  const LanguageModelConfig config = model_config(config_, data_.is_text(), init.get());
  if (data_.train->vocab_bound() > config.vocab) {
    throw DataError(cat("data: ", config_.data, " has tokens up to ",
                        data_.train->vocab_bound() - 1, ", the model's vocabulary is ",
                        config.vocab));
  }
  model_ = make_language_model(config);
  setup_ = parallel_setup(config_, dtype, *group_, host_tier_.get());
  parallel_ = std::make_unique<comm::DataParallel>(*model_, model_->blocks(), context_,
                                                   setup_.groups, setup_.options);
  if (init != nullptr && !checkpoints_->resumes()) init->load_into(*parallel_);
  int64_t count = 0;
  for (const Parameter* parameter : model_->parameters()) count += parameter->numel();
  log_info(data_.summary);
  log_info("model ", config_.init.empty() ? config_.model : config_.init, ": ", config.layers,
           " layers, width ", config.width, ", ", config.heads, " heads, vocabulary ", config.vocab,
           ", ", count, " parameters, ", dtype_name(dtype));
  log_info(world_.size(), world_.size() == 1 ? " rank on " : " ranks on ", context_.device(), " x ",
           context_.exec().threads, " threads, ", config_.global_batch, " sequences of ",
           config_.seq_len, " tokens a step, ", layout_.micro_batches(), " x ", config_.micro_batch,
           " per rank, zero ", config_.zero);
}

// Adds statistics over the ranks that hold the other parts of this rank's parameters.
optim::Adafactor::SumOverRanks Trainer::sum_over_shards() {
  if (config_.zero == 0) return {};
  return [this](const Tensor& x) {
    parallel_->shared().wait(setup_.groups.shard->all_reduce_sum(
        x, {.tag = "adafactor", .stream = context_.exec().stream}));
  };
}

void Trainer::build_optimizer() {
  if (config_.offload != OffloadKind::kNone) {
    optimizer_offload_ =
        std::make_unique<offload::OptimizerOffload>(*host_tier_, parallel_->shards());
    optimizer_ = make_optimizer(config_, optimizer_offload_->shards());
  } else {
    optimizer_ = make_optimizer(config_, parallel_->shards(), sum_over_shards());
  }
  if (config_.loss_scale > 0) {
    scaler_ = std::make_unique<amp::GradScaler>(
        context_, amp::GradScalerOptions{.initial_scale = float(config_.loss_scale),
                                         .growth_interval = config_.loss_scale_window,
                                         .hysteresis = config_.loss_scale_hysteresis});
  }
  schedule_ = {.decay = config_.schedule,
               .lr = config_.lr,
               .min_lr = config_.min_lr,
               .warmup_steps = config_.warmup_steps,
               .total_steps = config_.steps};
}

// What cannot be written shows before anything else is done.
void Trainer::open_output() {
  if (!is_main()) return;
  make_folder(config_.out);
  if (!config_.export_dir.empty()) make_folder(config_.export_dir);
  progress_ = std::make_unique<Progress>(process_log());
}

void Trainer::resume() {
  const RunPosition start =
      checkpoints_->load({.context = context_, .parallel = *parallel_, .optimizer = *optimizer_},
                         describe_run(config_, model_->config(), data_));
  first_step_ = done_steps_ = start.step;
  skipped_steps_ = start.skipped_steps;
  int64_t regular = 0;  // what so many steps of this batch would have used
  if (__builtin_mul_overflow(start.step, config_.global_batch, &regular)) {
    throw DataError(cat("resume: ", start.step, " steps were done, which cannot be"));
  }
  layout_.origin = start.samples - regular;
  if (scaler_ == nullptr || !checkpoints_->resumes()) return;
  LossScale scale = start.loss_scale.value_or(scaler_->state());
  scale.skipped_steps = static_cast<uint32_t>(skipped_steps_);
  scaler_->load(scale);
}

void Trainer::open_metrics() {
  if (!is_main()) return;
  const std::filesystem::path out = config_.out;
  const bool goes_on = checkpoints_->resumes() && checkpoints_->same_folder();
  if (goes_on) drop_metrics_after(out / "metrics.jsonl", first_step_);
  metrics_ =
      std::make_unique<MetricsWriter>(goes_on ? out / "metrics.jsonl" : fresh_metrics_file(out));
  checkpoints_->keep_with(*metrics_);
  checkpoints_->tell(RunState::kRunning, first_step_);
}

ExitCode Trainer::run() {
  try {
    return train();
  } catch (const Error& error) {
    // Another rank may be the cause; its error is the job's.
    checkpoints_->tell_failure(done_steps_, error);
    throw;
  }
}

RunPosition Trainer::position(int64_t step) const {
  RunPosition position{
      .step = step, .samples = layout_.begin(step), .skipped_steps = skipped_steps_};
  if (scaler_ != nullptr) position.loss_scale = scaler_->state();
  return position;
}

void Trainer::save(int64_t step) {
  finish_step();
  if (optimizer_offload_ != nullptr) optimizer_offload_->finish();
  checkpoints_->save(position(step));
}

void Trainer::after_step(int64_t step) {
  const bool last = step == config_.steps;
  if (config_.eval_every > 0 && (step % config_.eval_every == 0 || last)) {
    finish_step();
    evaluate(step);
  }
  if (config_.check_replicas > 0 && step % config_.check_replicas == 0) {
    finish_step();
    comm::check_replicas(*parallel_, *group_);
  }
  checkpoints_->poll();
  if (checkpoints_->due(step) || last) save(step);
}

// What all ranks have agreed on: they come here after the same step.
ExitCode Trainer::stop(int64_t step) {
  save(step);
  checkpoints_->finish();
  if (progress_ != nullptr) progress_->finish();
  const std::string what =
      cat("stopped after step ", done_steps_, " of ", config_.steps, ", as a signal asked for; ",
          config_.no_save ? "nothing was saved, because of --no-save"
                          : "saved, to go on with --resume auto");
  log_info(what);
  checkpoints_->tell(config_.no_save ? RunState::kFailed : RunState::kSaved, done_steps_,
                     static_cast<int>(ExitCode::kInterrupted), what);
  return ExitCode::kInterrupted;
}

ExitCode Trainer::train() {
  for (int64_t step = first_step_; step < config_.steps; ++step) {
    train_step(step);
    after_step(step + 1);
    if (stop_agreed_ && step + 1 < config_.steps) return stop(step + 1);
  }
  finish_step();
  checkpoints_->finish();
  if (progress_ != nullptr) progress_->finish();
  log_info(context_.allocator().memory_summary());
  micro_batches_.reset();  // and what its graphs keep of the memory
  if (host_tier_ != nullptr) log_info(host_tier_->context().allocator().memory_summary());
  if (group_->size() > 1) log_info(group_->traffic().summary());
  if (!config_.export_dir.empty()) {
    export_hf_folder(config_.export_dir, *model_, *parallel_, is_main(),
                     {.max_shard_bytes = config_.export_shard_bytes});
    log_info("wrote ", config_.export_dir);
  }
  if (config_.sample_tokens > 0) sample();
  checkpoints_->tell(RunState::kDone, done_steps_, 0);
  return ExitCode::kOk;
}

void Trainer::train_step(int64_t step) {
  world_.at_step(step + 1);
  QueuedStep queued{.step = step, .lr = schedule_.at(step), .start = Clock::now()};
  const double exposed_before = parallel_->exposed_seconds();
  optimizer_->prepare(context_, step, static_cast<float>(queued.lr));
  std::vector<Tensor> losses;
  for (int64_t micro = 0; micro < layout_.micro_batches(); ++micro) {
    const bool last = micro + 1 == layout_.micro_batches();
    forward(step, {.first = micro == 0, .last = last});
    finish_step();  // the one before, while its gradients are still there
    if (last && steps_during_backward()) optimizer_offload_->step_during_backward(*optimizer_);
    losses.push_back(micro_batches_->backward());
  }
  micro_batches_->end_step();
  parallel_->finish_gradients();
  parallel_->clip_grad_norm(static_cast<float>(config_.clip));
  if (skipped_steps_ > 0) {
    optimizer_->set_updates(context_, step - skipped_steps_);  // finish_step() was before backward
  }
  if (optimizer_offload_ != nullptr) {
    optimizer_offload_->step(*optimizer_);
  } else {
    optimizer_->step();
  }
  optimizer_->zero_grad();
  if (scaler_ != nullptr) scaler_->update();
  results_->queue(losses);
  queued.exposed_s = parallel_->exposed_seconds() - exposed_before;
  queued_ = queued;
  const bool ran_already = context_.exec().stream == nullptr;
  if (ran_already) finish_step();
}

// Nothing has to be known of the gradient as a whole before its parts are used.
bool Trainer::steps_during_backward() const {
  return optimizer_offload_ != nullptr && config_.clip == 0 && scaler_ == nullptr &&
         !config_.no_overlap;
}

void Trainer::forward(int64_t step, MicroBatches::Place place) {
  const Batch& batch = *batches_->next();
  context_.update_step([&](StepState& state) {
    state.grad_scale = 1 / static_cast<float>(tokens_per_step());
    state.sample = static_cast<uint64_t>(batch.first_position - layout_.begin(step));
  });
  micro_batches_->forward(batch, place);
}

void Trainer::finish_step() {
  if (!queued_.has_value()) return;
  const QueuedStep step = *queued_;
  queued_.reset();
  results_->wait();
  const auto loss = static_cast<float>(exchange_results() / static_cast<double>(tokens_per_step()));
  check_finite(step.step, loss);
  // A step that was queued before its predecessor was done began with that one's end.
  const double seconds = seconds_since(std::max(step.start, finished_));
  finished_ = Clock::now();
  const double rate = static_cast<double>(tokens_per_step()) / seconds;
  StepMetrics metrics{.step = step.step + 1, .loss = loss};
  metrics.grad_norm = results_->state().grad_norm;
  metrics.lr = step.lr;
  metrics.tokens = layout_.begin(step.step + 1) * config_.seq_len;
  metrics.tokens_per_s = rate;
  metrics.step_ms = seconds * 1e3;
  metrics.comm_exposed_ms = step.exposed_s * 1e3;
  if (peak_flops_ > 0) {
    metrics.mfu = rate * model_->flops_per_token(config_.seq_len) / (peak_flops_ * world_.size());
  }
  if (scaler_ != nullptr) {
    metrics.loss_scale = results_->state().loss_scale.value;
    metrics.skipped_steps = skipped_steps_ = results_->state().loss_scale.skipped_steps;
    if (was_skipped()) {
      log_info("step ", step.step + 1,
               ": the gradient overflowed, the step was skipped; the loss scale is ",
               *metrics.loss_scale, " now");
    }
  }
  metrics.device_peak_bytes = context_.allocator().stats().peak_reserved;
  metrics.host_peak_bytes = host_peak_bytes();
  report(metrics);
  done_steps_ = step.step + 1;
}

// Returns the sum of all ranks' losses. Where the time since the last exchange went tells a slow
// rank from those that wait for it.
double Trainer::exchange_results() {
  const double waited_s = group_->traffic().totals().exposed_seconds;
  const StepSummary all =
      exchange_step(*group_, {.losses = results_->losses(),
                              .busy_s = seconds_since(exchanged_) - (waited_s - waited_s_),
                              .stop = StopSignals::received() != 0});
  if (!all.ranks_to_stop.empty()) stop_agreed_ = true;
  const bool first = waited_s_ < 0;  // it includes building the model
  exchanged_ = Clock::now();
  waited_s_ = group_->traffic().totals().exposed_seconds;
  if (is_main() && !first) {
    for (const std::string& warning : stragglers_.look(all.busy_s)) log_warning(warning);
  }
  return all.loss_sum;
}

Tensor Trainer::upload(const std::vector<int32_t>& tokens, const Batch& batch) {
  return from_host<int32_t>(context_, tokens, {batch.rows, batch.seq_len});
}

// Gradients are already summed over the ranks, and so is their norm: all ranks see the same and
// stop together.
void Trainer::check_finite(int64_t step, float loss) {
  const bool bad_gradient = results_->state().non_finite != 0;
  if (was_skipped() || (std::isfinite(loss) && !bad_gradient)) return;
  std::string what = cat("the loss is ", loss, ranks_of_bad_losses(*group_, results_->losses()));
  if (bad_gradient) {
    what += cat(", the gradient of ", parallel_->first_non_finite(), " is not finite");
  }
  if (scaler_ != nullptr)
    what += cat(", with a loss scale of ", results_->state().loss_scale.value);
  throw NonFiniteError(
      cat("step ", step + 1, ": ", what, "; want finite values: lower --lr, or check the data"));
}

bool Trainer::was_skipped() const {
  const uint32_t non_finite = results_->state().non_finite;
  return scaler_ != nullptr && non_finite != 0 && non_finite != kernels::kOverflowAtMinScale;
}

void Trainer::prepare_evaluation() {
  if (data_.val == nullptr) {
    throw DataError(
        cat("data: ", config_.data, " leaves nothing for validation, which --eval-every asks for"));
  }
  eval_sampler_.emplace(data_.val->size(), config_.seq_len, config_.micro_batch,
                        config_.eval_samples);
}

void Trainer::evaluate(int64_t step) {
  const Inference inference(context_);
  const EvalSampler& sampler = *eval_sampler_;
  Prefetcher batches(eval_batches(
      {.tokens = data_.val, .sampler = sampler, .rank = world_.rank(), .ranks = world_.size()}));
  std::vector<double> sums;
  while (const Batch* batch = batches.next()) {
    const Tensor loss = model_->loss(upload(batch->inputs, *batch), upload(batch->targets, *batch));
    sums.push_back(to_host<float>(loss).front());
  }
  const double tokens = static_cast<double>(sampler.windows() * config_.seq_len);
  const auto val_loss = static_cast<float>(comm::ordered_sum(*group_, sums) / tokens);
  if (metrics_ != nullptr) metrics_->write(EvalMetrics{.step = step, .val_loss = val_loss});
  log_info("step ", step, ": validation loss ", val_loss, " over ", sampler.windows(),
           " sequences");
}

void Trainer::report(const StepMetrics& metrics) {
  if (!is_main()) return;
  metrics_->write(metrics);
  progress_->update({.step = metrics.step,
                     .total_steps = config_.steps,
                     .loss = metrics.loss,
                     .tokens_per_s = metrics.tokens_per_s,
                     .mfu = metrics.mfu,
                     .memory_bytes = metrics.device_peak_bytes});
}

std::vector<int32_t> Trainer::prompt() const {
  std::vector<int32_t> tokens;
  for (const char c : config_.sample_prompt) tokens.push_back(static_cast<uint8_t>(c));
  if (tokens.empty()) {
    tokens.push_back(data_.is_text() ? '\n' : int32_t(model_->config().vocab - 1));
  }
  for (const int32_t token : tokens) {
    if (token < model_->config().vocab) continue;
    throw ConfigError(cat("--sample-prompt has the byte ", token, ", the model's vocabulary is ",
                          model_->config().vocab));
  }
  return tokens;
}

void Trainer::sample() {
  const bool as_text = data_.is_text();
  const std::vector<int32_t> tokens = generate(*model_, context_, prompt(),
                                               {.tokens = config_.sample_tokens,
                                                .temperature = float(config_.temperature),
                                                .top_k = config_.top_k,
                                                .seed = uint64_t(config_.seed)});
  std::string text = config_.sample_prompt;
  for (const int32_t token : tokens) {
    if (as_text) {
      text += token < 256 ? static_cast<char>(token) : '?';
    } else {
      text += cat(text.empty() ? "" : " ", token);
    }
  }
  log_info("sample:\n", text);
}

}  // namespace shale::models
