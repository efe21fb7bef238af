#include "shale/models/plan/time/step_clock.h"

#include <algorithm>
#include <ctime>
#include <string_view>
#include <utility>

namespace shale::models {
namespace {

constexpr comm::StageTimes kNoTime{.forward = 0, .backward_input = 0, .backward_weights = 0};

bool is_product(std::string_view slot) {
  return slot == "gemm" || slot == "fp8_gemm";
}

// Returns true for kernels between tensor-parallel layers, whose rows the tensor ranks can divide
// among them.
bool is_of_rows(std::string_view slot) {
  return slot.starts_with("layer_norm") || slot.starts_with("rms_norm") || slot == "dropout";
}

bool is_of_micro_batch(StepPhase phase) {
  return phase == StepPhase::kForward || phase == StepPhase::kBackward;
}

double thread_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return double(time.tv_sec) + 1e-9 * double(time.tv_nsec);
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
  for (size_t i = 0; i < exposed.size(); ++i) {
    exposed[i] += times * (to.exposed[i] - from.exposed[i]);
    fitted[i] += times * (to.fitted[i] - from.fitted[i]);
  }
  for (size_t i = 0; i < by_basis.size(); ++i) {
    by_basis[i] += times * (to.by_basis[i] - from.by_basis[i]);
  }
  host += times * (to.host - from.host);
  slowed += times * (to.slowed - from.slowed);
  exposed_host += times * (to.exposed_host - from.exposed_host);
  to_host += times * (to.to_host - from.to_host);
  from_host += times * (to.from_host - from.from_host);
  on_host += times * (to.on_host - from.on_host);
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
  host_now_ = std::max(host_now_, began_);  // the host is at most one step ahead of the device
  began_ = now_;
  left_kernel_.reset();
  time_ = {};
  chunks_.clear();
}

RankTime StepClock::end_step() {
  end_exchange();
  if (calls_ > 0) times_.set_host_seconds(threads_, between_ / double(calls_));
  between_ = 0;
  calls_ = 0;
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

// Advances the clock by the time of kernels, plus their slowdown by concurrent collectives.
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

// Advances the clock by the time of a kernel, or of a copy on the compute stream.
void StepClock::run_for(const std::string& what, const KernelTime& kernel) {
  wait_for_host(host_now_);
  time_.kernels[what] += kernel.seconds;
  if (kernel.basis == Basis::kMeasured) time_.measured[what] += kernel.seconds;
  time_.by_basis[size_t(kernel.basis)] += kernel.seconds;
  advance(kernel.seconds);
}

// Adds the mean time that this dry run spends between kernels.
void StepClock::add_host(int threads) {
  if (pass_ == KernelTimes::Pass::kInPlace && left_kernel_) {
    between_ += thread_seconds() - *left_kernel_;
    ++calls_;
    threads_ = threads;
  }
  const double seconds = times_.host_seconds(threads);
  time_.host += seconds;
  time_.by_basis[size_t(Basis::kMeasured)] += seconds;
  now_ += seconds;
}

void StepClock::around(const kernels::SlotCall& call) {
  add_host(call.exec().threads);
  KernelTime kernel = times_.of(call);
  if (!cluster_.sequence_parallel && is_of_rows(call.slot().name())) kernel.seconds *= pieces_;
  run_for(call.slot().name(), kernel);
  if (cluster_.exchanges_in_pieces && is_product(call.slot().name())) {
    const double hidden = std::min(left_, kernel.seconds);
    left_ -= hidden;
    end_exchange();
    product_ = kernel.seconds - hidden;
    slow(hidden);
  }
  call.run();
  if (pass_ == KernelTimes::Pass::kInPlace) left_kernel_ = thread_seconds();
}

double StepClock::queue(const comm::CollectiveCall& call, const comm::Members& members,
                        comm::Lane lane) {
  const auto [found, is_new] = spreads_.try_emplace(members);
  if (is_new) found->second = spread_of(cluster_, *members);
  double& free = free_[size_t(lane)];
  const double queued = call.stream == nullptr ? now_ : time_of(call.stream);
  free = std::max(free, queued) + collective_seconds(cluster_, call, found->second);
  basis_[size_t(lane)] = basis_of(cluster_, call.op, found->second);
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

// Accounts for a collective that is split into pieces. The first piece of a GEMM's input, and the
// last piece of its output, overlap nothing. All other pieces overlap this GEMM, which is the next
// one for a gather and the previous one for a reduce-scatter. Returns the time to wait now.
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

// Waits for the part of the last exchange that no GEMM has hidden.
void StepClock::end_exchange() {
  wait(std::exchange(left_, 0), comm::Lane::kModel);
}

void StepClock::wait(double waited, comm::Lane lane) {
  const Basis basis = basis_[size_t(lane)];
  time_.exposed[size_t(lane)] += waited;
  if (basis == Basis::kFitted) time_.fitted[size_t(lane)] += waited;
  time_.by_basis[size_t(basis)] += waited;
  now_ += waited;
}

void StepClock::wait_for_host(double time) {
  const double waited = std::max(time - now_, 0.0);
  time_.exposed_host += waited;
  time_.by_basis[size_t(Basis::kExtrapolated)] += waited;
  now_ += waited;
}

// Adds the time of a kernel on the host, which runs at memory bandwidth. On a CPU, the device is
// the host.
void StepClock::around_on_host(const kernels::SlotCall& call) {
  if (!cluster_.is_gpu) return around(call);
  // The bandwidth is unknown only without offload. Such kernels are then small.
  const bool is_known = host_rates_.memory > 0;
  const double seconds = is_known ? described(call).cost.bytes() / host_rates_.memory : 0;
  time_.on_host += seconds;
  host_now() += seconds;
  call.run();
}

double StepClock::copy_seconds(Way way, size_t bytes) const {
  if (way == Way::kInside) return times_.of_copy(bytes).seconds;
  // The bandwidth is unknown only without offload. Copies are then small.
  const bool is_known = host_rates_.copies > 0;
  return cluster_.launch_s + (is_known ? double(bytes) / host_rates_.copies : 0);
}

void StepClock::copies(Way way, size_t bytes, void* stream) {
  if (stream == compute_stream_) {
    run_for("copy", way == Way::kInside ? times_.of_copy(bytes)
                                        : KernelTime{.seconds = copy_seconds(way, bytes)});
    // So that the copy does not count as host time.
    if (left_kernel_) left_kernel_ = thread_seconds();
    return;
  }
  const double seconds = copy_seconds(way, bytes);
  double& busy_until = streams_[stream];
  busy_until = std::max(busy_until, host_now()) + seconds;
  if (way == Way::kToHost) time_.to_host += seconds;
  if (way == Way::kFromHost) time_.from_host += seconds;
}

double StepClock::time_of(void* stream) {
  return stream == compute_stream_ ? now_ : streams_[stream];
}

void StepClock::hold_back(void* stream, double time) {
  if (stream == compute_stream_) return wait_for_host(time);
  double& busy_until = streams_[stream];
  busy_until = std::max(busy_until, time);
}

void StepClock::host_waits(double time) {
  host_now() = std::max(host_now(), time);
}

void StepClock::step(size_t index, const std::function<void()>& work) {
  is_stepping_ = true;
  work();
  is_stepping_ = false;
  stepped_[index] = stepper_now_;
}

void StepClock::await(size_t index) {
  host_waits(stepped_[index]);
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
    // A micro-batch lasts from its forward to the forward of the next one.
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
