// Reports of Trainer: to other ranks, to files, and to the user.
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <utility>

#include "shale/base/clock.h"
#include "shale/base/log.h"
#include "shale/base/parse.h"
#include "shale/models/training/report/rank_report.h"
#include "shale/models/training/stop_signals.h"
#include "shale/models/training/trainer.h"

namespace shale::models {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

StepMetrics Trainer::metrics_of(const StepOutcome& outcome) {
  StepMetrics metrics{.step = outcome.step + 1};
  accounts_.measure(outcome, *group_, *parallel_, metrics);
  const int64_t items = layout_.batch_at(outcome.step) * unit_.items_per_sample;
  const double rate = static_cast<double>(items) / (*metrics.step_ms / 1e3);
  metrics.grad_norm = outcome.state.grad_norm;
  metrics.lr = schedule_.at(outcome.step);
  metrics.item = unit_.items;
  metrics.items = layout_.begin(outcome.step + 1) * unit_.items_per_sample;
  metrics.items_per_s = rate;
  if (const int64_t epoch = task_.samples_per_epoch(); epoch > 0) {
    metrics.epoch =
        static_cast<double>(layout_.begin(outcome.step + 1)) / static_cast<double>(epoch);
  }
  if (peak_flops_ > 0) metrics.mfu = rate * unit_.flops_per_item / (peak_flops_ * world_.size());
  if (step_->scales_loss()) {
    metrics.loss_scale = outcome.state.loss_scale.value;
    accounts_.next_loss_scale(*metrics.loss_scale);
    metrics.skipped_steps = step_->skipped_steps();
    if (outcome.was_skipped && !outcome.was_outlier) {
      log_info("step ", outcome.step + 1,
               ": the gradient overflowed, the step was skipped; the loss scale is ",
               format_real(*metrics.loss_scale), " now");
    }
  }
  if (config_.skip_non_finite > 0) metrics.skipped_steps = step_->skipped_steps();
  if (step_->skips_outliers()) {
    metrics.skipped_steps = step_->skipped_steps();
    metrics.outlier_steps = step_->outlier_steps();
    if (outcome.was_outlier) {
      log_info("step ", outcome.step + 1, ": the gradient's norm of ",
               format_real(outcome.state.grad_norm), " is more than ",
               format_real(config_.skip_outliers),
               " standard deviations above the mean of the last ", optim::OutlierOptions().window,
               " steps, the step was skipped");
    }
  }
  if (!outcome.tally.empty()) task_.describe_tally(outcome.tally, metrics);
  metrics.device_peak_bytes = context_.allocator().stats().peak_reserved;
  metrics.host_peak_bytes = peak_resident_bytes();
  return metrics;
}

const Batch& Trainer::next_batch() {
  const TimelineScope scope(timeline_.get(), "data");
  const Clock::time_point start = Clock::now();
  const Batch& batch = *batches_->next();
  accounts_.add_data_wait(seconds_since(start));
  return batch;
}

void Trainer::report_data_wait(double run_s) const {
  constexpr double kWorthAWord = 0.02;
  const double share = accounts_.data_wait_seconds() / run_s;
  if (!(share > kWorthAWord)) return;
  log_info("data loading limits the speed: ", std::lround(100 * share),
           "% of the time rank 0 waited for batches; --workers ", config_.workers + 1,
           " or more may help if there are free cores");
}

// Sends the results of a step to the other ranks. busy_s distinguishes a slow rank from the ranks
// that wait for it.
void Trainer::send_news(const StepOutcome& outcome, double step_ms) {
  exchange_.start({.losses = outcome.losses,
                   .busy_s = accounts_.busy_seconds(*group_),
                   .step_s = step_ms / 1e3,
                   .stop = StopSignals::received() != 0,
                   .save = checkpoints_->news()});
}

void Trainer::settle() {
  if (!told_) return;
  Told told = *std::exchange(told_, std::nullopt);
  const StepSummary all = exchange_.take();
  if (!all.ranks_to_stop.empty()) stop_agreed_ = true;
  votes_.set_step(all.step_s, layout_.micro_batches(told.outcome.step));
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

// Throws NonFiniteError for a non-finite loss or gradient. All ranks throw it after the same step,
// because loss and gradient norm are summed over ranks.
void Trainer::check_finite(const StepOutcome& outcome, float loss) {
  const bool bad_gradient = outcome.state.non_finite != 0;
  if (outcome.was_non_finite && non_finite_in_a_row_ <= config_.skip_non_finite) {
    if (!is_main()) return;
    return log_warning("step ", outcome.step + 1, ": the loss is ", loss,
                       ", the gradient is not finite; the step was skipped (", non_finite_in_a_row_,
                       " in a row, at most ", config_.skip_non_finite, " are allowed)");
  }
  if (outcome.was_skipped && !outcome.was_non_finite) return;
  if (std::isfinite(loss) && !bad_gradient) return;
  std::string what = cat("the loss is ", loss, ranks_of_bad_losses(*group_, outcome.losses));
  if (bad_gradient) {
    what += cat(", the gradient of ", step_->parallel().first_non_finite(), " is not finite");
  }
  if (step_->scales_loss()) what += cat(", with a loss scale of ", outcome.state.loss_scale.value);
  throw NonFiniteError(
      cat("step ", outcome.step + 1, ": ", what,
          "; expected finite values: lower --lr, or check the data; ",
          config_.skip_non_finite > 0
              ? cat("the limit of --skip-non-finite ", config_.skip_non_finite, " is reached")
              : std::string("--skip-non-finite N skips such steps")));
}

void Trainer::evaluate(int64_t step) {
  const TimelineScope scope(timeline_.get(), "validation");
  const Clock::time_point start = Clock::now();
  step_->parallel().average_buffers();
  Evaluation result;
  step_->with_anchors([&] { result = task_.evaluate(task_context()); });
  EvalMetrics metrics{.step = step,
                      .val_loss = static_cast<float>(result.loss),
                      .top_k = result.top_k,
                      .more = result.more,
                      .item = unit_.items,
                      .items = result.items,
                      .ms = 1e3 * seconds_since(start)};
  if (config_.ema > 0) {
    step_->with_average([&] {
      TaskContext run = task_context();
      run.show = {};  // its pictures were already shown, with the trained weights
      metrics.ema_val_loss = static_cast<float>(task_.evaluate(run).loss);
    });
  }
  if (report_ != nullptr) report_->write(metrics);
  if (validations_.best_loss ? metrics.val_loss < *validations_.best_loss
                             : std::isfinite(metrics.val_loss)) {
    validations_ = {.best_loss = metrics.val_loss, .best_step = step};
  } else {
    ++validations_.without_progress;
  }
  log_info(format_evaluation(metrics, config_.steps));
  task_.show(task_context(), step);
}

bool Trainer::out_of_patience() const {
  return config_.patience > 0 && validations_.without_progress >= config_.patience;
}

void Trainer::report_end(double run_s) const {
  std::string line = cat("done: ", done_steps_, " steps");
  if (first_step_ < done_steps_) line += cat(" in ", format_duration(run_s));
  if (done_steps_ < config_.steps) line += cat(", ended by --patience ", config_.patience);
  if (validations_.best_loss) {
    std::array<char, 32> loss{};
    std::snprintf(loss.data(), loss.size(), "%.4f", double{*validations_.best_loss});
    line += cat("; best validation loss ", loss.data(), " at step ", validations_.best_step);
  }
  log_info(line,
           config_.no_save ? "; nothing is saved (--no-save)" : cat("; saved in ", config_.out));
  if (config_.no_save) return;
  const std::string command = task_.command_to_try(config_.out);
  log_info("next: shale report ", config_.out, command.empty() ? "" : ", ", command);
}

void Trainer::report_ranks(int64_t step) {
  const RanksMetrics all = ranks_->gather(step);
  if (!is_main()) return;
  report_->write(all);
  for (const std::string& warning : gpu_warnings(all, gpu_warnings_)) log_warning(warning);
}

void Trainer::report(const StepMetrics& metrics) {
  if (!is_main()) return;
  report_->write(metrics);
  if (const std::string warning = loss_watch_.look(metrics.step, metrics.loss, *metrics.lr);
      !warning.empty()) {
    log_warning(warning);
  }
  progress_->update({.step = metrics.step,
                     .total_steps = config_.steps,
                     .epoch = metrics.epoch,
                     .loss = metrics.loss,
                     .lr = metrics.lr,
                     .grad_norm = metrics.grad_norm,
                     .item = unit_.item,
                     .items_per_s = metrics.items_per_s,
                     .mfu = metrics.mfu,
                     .memory_bytes = metrics.device_peak_bytes});
}

}  // namespace shale::models
