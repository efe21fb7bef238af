#include "shale/models/training/step_accounts.h"

#include <algorithm>

#include "shale/base/clock.h"

namespace shale::models {
namespace {

// Returns how long this rank has waited for gradients and parameters, in seconds. With NCCL, only
// waits reported so far count.
double exposed_seconds(const comm::ProcessGroup& group) {
  return group.traffic().totals(comm::Traffic::kParameters).exposed_seconds +
         group.traffic().totals(comm::Traffic::kGradients).exposed_seconds;
}

SentBytes sent_bytes(const comm::ProcessGroup& all, const comm::ProcessGroup* replicas) {
  const auto sent = [&](comm::Traffic traffic) { return all.traffic().totals(traffic).sent_bytes; };
  SentBytes bytes{.gradients = sent(comm::Traffic::kGradients),
                  .parameters = sent(comm::Traffic::kParameters),
                  .activations = sent(comm::Traffic::kActivations)};
  if (replicas != nullptr) bytes.replicas = replicas->traffic().totals().sent_bytes;
  return bytes;
}

SentBytes difference(const SentBytes& now, const SentBytes& before) {
  SentBytes bytes{.gradients = now.gradients - before.gradients,
                  .parameters = now.parameters - before.parameters,
                  .activations = now.activations - before.activations};
  if (now.replicas) bytes.replicas = *now.replicas - before.replicas.value_or(0);
  return bytes;
}

// Returns the milliseconds between `before` and `now`, which are in seconds, and sets `before` to
// `now`.
double milliseconds(double now, double& before) {
  return (now - std::exchange(before, now)) * 1e3;
}

}  // namespace

void StepAccounts::measure(const StepOutcome& outcome, const comm::ProcessGroup& all,
                           const comm::Parallel& parallel, StepMetrics& metrics) {
  // A step that was queued during the previous step begins when that step ends.
  metrics.step_ms = seconds_since(std::max(outcome.started, finished_)) * 1e3;
  finished_ = Clock::now();
  metrics.comm_exposed_ms = milliseconds(exposed_seconds(all), exposed_s_);
  metrics.data_wait_ms = milliseconds(data_wait_s_, told_data_wait_s_);
  const comm::ShardGroups& groups = parallel.groups();
  if (all.size() > 1) {
    const SentBytes sent = sent_bytes(all, groups.replicate);
    metrics.sent = difference(sent, std::exchange(sent_, sent));
  }
  if (groups.stages != nullptr) {
    const comm::TrafficMeter& meter = groups.stages->group->traffic();
    metrics.bubble_ms =
        milliseconds(meter.totals(comm::Traffic::kActivations).exposed_seconds, bubble_s_);
  }
}

double StepAccounts::busy_seconds(const comm::ProcessGroup& all) {
  const double waited_s = all.traffic().totals().exposed_seconds;
  const double busy_s = seconds_since(told_at_) - (waited_s - waited_s_);
  told_at_ = Clock::now();
  waited_s_ = waited_s;
  return busy_s;
}

}  // namespace shale::models
