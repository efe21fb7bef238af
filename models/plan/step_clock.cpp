#include "shale/models/plan/step_clock.h"

#include <algorithm>
#include <utility>

namespace shale::models {

void RankTime::add(const RankTime& other, double share) {
  total += share * other.total;
  for (const auto& [slot, seconds] : other.kernels) kernels[slot] += share * seconds;
  for (size_t i = 0; i < exposed.size(); ++i) exposed[i] += share * other.exposed[i];
  for (size_t i = 0; i < by_basis.size(); ++i) by_basis[i] += share * other.by_basis[i];
  slowed += share * other.slowed;
  chunks = other.chunks;
  acting += share * other.acting;
  message = other.message;
}

void StepClock::begin_step() {
  began_ = now_;
  time_ = {};
  chunks_.clear();
}

RankTime StepClock::end_step() {
  time_.total = now_ - began_;
  for (const auto& [chunk, did] : chunks_) {
    const auto mean = [&](double sum, comm::ActionKind kind) {
      return sum / std::max(did.counts[size_t(kind)], 1);
    };
    const bool is_split = did.counts[size_t(comm::ActionKind::kBackwardInput)] > 0;
    time_.chunks[chunk] = {
        .forward = mean(did.sums.forward, comm::ActionKind::kForward),
        .backward_input = mean(did.sums.backward_input, is_split ? comm::ActionKind::kBackwardInput
                                                                 : comm::ActionKind::kBackward),
        .backward_weights =
            mean(did.sums.backward_weights, comm::ActionKind::kBackwardWeights)};
  }
  return std::exchange(time_, {});
}

// A collective that runs meanwhile takes a part of the device.
void StepClock::advance(double seconds) {
  const double busy_until = *std::max_element(free_.begin(), free_.end());
  const double beside = std::clamp(busy_until - now_, 0.0, seconds);
  const double slowed = beside * cluster_.overlap_tax;
  time_.slowed += slowed;
  now_ += seconds + slowed;
}

void StepClock::around(const kernels::SlotCall& call) {
  const KernelTime kernel = times_.of(call);
  time_.kernels[call.slot().name()] += kernel.seconds;
  time_.by_basis[size_t(kernel.basis)] += kernel.seconds;
  advance(kernel.seconds);
  call.run();
}

double StepClock::queue(const comm::CollectiveCall& call, std::span<const int> members,
                        comm::Lane lane) {
  double& free = free_[size_t(lane)];
  free = std::max(free, now_) + collective_seconds(cluster_, call, members);
  return free;
}

void StepClock::send(const View& message, int sender, int receiver) {
  time_.message = message_seconds(cluster_, message.bytes(), sender, receiver);
}

void StepClock::wait_until(double time, comm::Lane lane) {
  const double waited = std::max(time - now_, 0.0);
  const Basis basis = cluster_.links_are_fitted ? Basis::kFitted : Basis::kExtrapolated;
  time_.exposed[size_t(lane)] += waited;
  time_.by_basis[size_t(basis)] += waited;
  now_ += waited;
}

void StepClock::acts(const comm::Action& action) {
  action_ = action;
  is_in_pipeline_ = true;
}

void StepClock::begins(StepPhase) {
  action_began_ = now_;
}

void StepClock::ends(StepPhase phase) {
  const bool is_action = phase == StepPhase::kForward || phase == StepPhase::kBackward;
  if (!is_in_pipeline_ || !is_action) return;
  const double seconds = now_ - action_began_;
  ChunkSums& did = chunks_[action_.chunk];
  ++did.counts[size_t(action_.kind)];
  time_.acting += seconds;
  using enum comm::ActionKind;
  switch (action_.kind) {
    case kForward: did.sums.forward += seconds; break;
    case kBackward:
    case kBackwardInput: did.sums.backward_input += seconds; break;
    case kBackwardWeights: did.sums.backward_weights += seconds; break;
  }
}

}  // namespace shale::models
