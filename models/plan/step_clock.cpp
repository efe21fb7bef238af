#include "shale/models/plan/step_clock.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace shale::models {
namespace {

constexpr comm::StageTimes kNoTime{.forward = 0, .backward_input = 0, .backward_weights = 0};

bool is_product(std::string_view slot) {
  return slot == "gemm" || slot == "fp8_gemm";
}

// What is between the layers that tensor ranks share.
bool is_of_rows(std::string_view slot) {
  return slot.starts_with("layer_norm") || slot.starts_with("rms_norm") || slot == "dropout";
}

bool is_of_micro_batch(StepPhase phase) {
  return phase == StepPhase::kForward || phase == StepPhase::kBackward;
}

}  // namespace

void TimeParts::add(const TimeParts& from, const TimeParts& to, double times) {
  total += times * (to.total - from.total);
  const auto add_slots = [times](auto& mine, const auto& before, const auto& after) {
    for (const auto& [slot, seconds] : after) {
      const auto found = before.find(slot);
      mine[slot] += times * (seconds - (found == before.end() ? 0 : found->second));
    }
  };
  add_slots(kernels, from.kernels, to.kernels);
  add_slots(measured, from.measured, to.measured);
  for (size_t i = 0; i < exposed.size(); ++i)
    exposed[i] += times * (to.exposed[i] - from.exposed[i]);
  for (size_t i = 0; i < by_basis.size(); ++i) {
    by_basis[i] += times * (to.by_basis[i] - from.by_basis[i]);
  }
  slowed += times * (to.slowed - from.slowed);
}

void RankTime::add_share(const RankTime& other, double share) {
  add({}, other, share);
  middle.add({}, other.middle, share);
  chunks = other.chunks;
  middle_chunks = other.middle_chunks;
  acting += share * other.acting;
  message = other.message;
}

RankTime with_micro_batches(RankTime time, int64_t from, int64_t to) {
  const auto more = double(to - from);
  time.add({}, time.middle, more);
  if (!time.chunks.empty()) time.acting += more * time.middle.total;
  for (auto& [chunk, mean] : time.chunks) {
    const comm::StageTimes& middle = time.middle_chunks.at(chunk);
    const auto mean_of = [&](double& all, double one) {
      all = (all * double(from) + one * more) / double(to);
    };
    mean_of(mean.forward, middle.forward);
    mean_of(mean.backward_input, middle.backward_input);
    mean_of(mean.backward_weights, middle.backward_weights);
  }
  return time;
}

void StepClock::begin_step(int64_t micro_batches) {
  micro_batches_ = micro_batches;
  forwards_ = 0;
  began_ = now_;
  time_ = {};
  chunks_.clear();
}

RankTime StepClock::end_step() {
  end_exchange();
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
        .backward_weights = mean(did.sums.backward_weights, comm::ActionKind::kBackwardWeights)};
  }
  return std::exchange(time_, {});
}

TimeParts StepClock::reading() const {
  TimeParts parts = time_;
  parts.total = now_ - began_;
  return parts;
}

// A collective that runs meanwhile takes a part of the device.
void StepClock::advance(double seconds) {
  const double busy_until = *std::max_element(free_.begin(), free_.end());
  const double beside = std::clamp(busy_until - now_, 0.0, seconds);
  now_ += seconds;
  slow(beside);
}

void StepClock::slow(double beside) {
  const double slowed = beside * cluster_.overlap_tax;
  time_.slowed += slowed;
  time_.by_basis[size_t(Basis::kExtrapolated)] += slowed;
  now_ += slowed;
}

void StepClock::around(const kernels::SlotCall& call) {
  KernelTime kernel = times_.of(call);
  if (!cluster_.sequence_parallel && is_of_rows(call.slot().name())) kernel.seconds *= pieces_;
  time_.kernels[call.slot().name()] += kernel.seconds;
  if (kernel.basis == Basis::kMeasured) time_.measured[call.slot().name()] += kernel.seconds;
  time_.by_basis[size_t(kernel.basis)] += kernel.seconds;
  advance(kernel.seconds);
  if (cluster_.exchanges_in_pieces && is_product(call.slot().name())) {
    const double hidden = std::min(left_, kernel.seconds);
    left_ -= hidden;
    end_exchange();
    product_ = kernel.seconds - hidden;
    slow(hidden);
  }
  call.run();
}

double StepClock::queue(const comm::CollectiveCall& call, const comm::Members& members,
                        comm::Lane lane) {
  const auto [found, is_new] = spreads_.try_emplace(members);
  if (is_new) found->second = spread_of(cluster_, *members);
  double& free = free_[size_t(lane)];
  free = std::max(free, now_) + collective_seconds(cluster_, call, found->second);
  if (lane == comm::Lane::kModel) {
    op_ = call.op;
    pieces_ = double(members->size());
  }
  return free;
}

void StepClock::send(const View& message, int sender, int receiver) {
  time_.message = message_seconds(cluster_, message.bytes(), sender, receiver);
}

void StepClock::wait_until(double time, comm::Lane lane) {
  double seconds = std::max(time - now_, 0.0);
  if (lane == comm::Lane::kModel && cluster_.exchanges_in_pieces) {
    end_exchange();
    seconds = beside_products(seconds);
    free_[size_t(lane)] = now_ + seconds;
  }
  wait(seconds, lane);
}

// The first piece of what products read, and the last of what they write, has none beside it; the
// others go beside the product that is next, or that was last. Returns what is waited for now.
double StepClock::beside_products(double seconds) {
  const double first = seconds / pieces_, others = seconds - first;
  if (op_ != comm::CollectiveOp::kReduceScatterSum) {
    left_ = others;
    return first;
  }
  const double hidden = std::min(others, std::exchange(product_, 0));
  slow(hidden);
  return seconds - hidden;
}

// Waits for what found no product beside it.
void StepClock::end_exchange() {
  wait(std::exchange(left_, 0), comm::Lane::kModel);
}

void StepClock::wait(double waited, comm::Lane lane) {
  const Basis basis = basis_of_links(cluster_);
  time_.exposed[size_t(lane)] += waited;
  time_.by_basis[size_t(basis)] += waited;
  now_ += waited;
}

void StepClock::acts(const comm::Action& action) {
  action_ = action;
  is_in_pipeline_ = true;
}

void StepClock::begins(StepPhase phase) {
  action_began_ = now_;
  if (is_in_pipeline_) {
    if (is_of_micro_batch(phase)) at_begin_ = reading();
  } else if (phase == StepPhase::kForward) {
    // The time of a micro-batch is that from its forward to the next one's.
    ++forwards_;
    const TimeParts now = reading();
    if (forwards_ == micro_batches_ && forwards_ > 1) time_.middle.add(at_begin_, now, 1);
    at_begin_ = now;
  }
}

void StepClock::ends(StepPhase phase) {
  if (!is_of_micro_batch(phase)) return;
  const double seconds = now_ - action_began_;
  time_.acting += seconds;
  if (!is_in_pipeline_) return;
  ChunkSums& did = chunks_[action_.chunk];
  ++did.counts[size_t(action_.kind)];
  const auto add_to = [&](comm::StageTimes& times) {
    using enum comm::ActionKind;
    switch (action_.kind) {
      case kForward: times.forward += seconds; break;
      case kBackward:
      case kBackwardInput: times.backward_input += seconds; break;
      case kBackwardWeights: times.backward_weights += seconds; break;
    }
  };
  add_to(did.sums);
  if (action_.micro != micro_batches_ - 2) return;
  time_.middle.add(at_begin_, reading(), 1);
  add_to(time_.middle_chunks.try_emplace(action_.chunk, kNoTime).first->second);
}

}  // namespace shale::models
