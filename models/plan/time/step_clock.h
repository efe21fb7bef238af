#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>

#include "shale/comm/parallel/pipeline/simulate.h"
#include "shale/models/plan/time/kernel_times.h"

namespace shale::models {

// Where time goes, on a rank that waits for no other: in seconds.
struct TimeParts {
  double total = 0;
  std::map<std::string, double> kernels;       // by slot
  std::map<std::string, double> measured;      // of these, by times that were measured
  std::array<double, comm::kLanes> exposed{};  // that it waited for collectives, by lane
  std::array<double, comm::kLanes> fitted{};   // of it, for those whose time is fitted
  std::array<double, kBases> by_basis{};       // of kernels and of what was exposed
  double host = 0;                             // of kernels' host, before it called them
  double slowed = 0;        // that kernels took longer for the collectives beside them
  double exposed_host = 0;  // that the device waited for copies from the host, and for its work
  // Of what is offloaded, beside the device: copies in either direction, and kernels on the host.
  double to_host = 0, from_host = 0, on_host = 0;

  // Adds `times` what lies between two readings.
  void add(const TimeParts& from, const TimeParts& to, double times);
};

// Of a rank's step.
struct RankTime : TimeParts {
  double acting = 0;  // of the total, what forwards and backwards took
  // Of a pipeline: what a chunk takes for a micro-batch, by chunk, and a message to the next stage.
  std::map<int, comm::StageTimes> chunks;
  double message = 0;
  // Of the last but one of the step's micro-batches: what one more between the first and the last
  // would add, where there are three at least.
  TimeParts middle;
  std::map<int, comm::StageTimes> middle_chunks;

  // Adds what a share of the steps takes; chunks and messages are those of the last.
  void add_share(const RankTime& other, double share);
};

// The time of a step of `to` micro-batches, by one of `from` that differs in nothing else.
RankTime with_micro_batches(RankTime time, int64_t from, int64_t to);

// The clock of a planned rank: told what the rank does, kernel by kernel and collective by
// collective, in the order in which it would be done, it says when. There is one stream of kernels;
// collectives run beside it, those of a lane one after another, and slow it (Cluster::overlap_tax).
// What the host does between kernels takes no time but where kernels are measured: then it is what
// the rehearsal itself takes between them, whose tape, allocator and modules are the run's. A GPU's
// host has kernels of its own: those that the thread calls which queues the device's work, and
// beside it those of the thread that steps what is offloaded. Copies on other streams than the
// compute stream run beside both, one stream's one after another.
class StepClock final : public RehearsalClock {
 public:
  // ranks: of the run, which share their nodes' hosts.
  StepClock(const Cluster& cluster, KernelTimes& times, int64_t ranks = 1)
      : cluster_(cluster), times_(times), host_rates_(host_rates(cluster, ranks)) {}

  // Mean of the steps that have ended, weighted by their shares.
  const RankTime& time() const { return mean_; }

  bool measures() const override { return times_.measures(); }
  void set_pass(Pass pass) override {
    pass_ = pass;
    times_.set_pass(pass);
  }
  void set_compute_stream(void* stream) override { compute_stream_ = stream; }
  kernels::CallObserver& host_observer() override { return host_observer_; }
  void begin_step(int64_t micro_batches) override;
  RankTime end_step();
  void end_step(double share) override {
    const RankTime time = end_step();
    if (share > 0) mean_.add_share(time, share);
  }

  void around(const kernels::SlotCall& call) override;
  double queue(const comm::CollectiveCall& call, const comm::Members& members,
               comm::Lane lane) override;
  void send(const View& message, int sender, int receiver) override;
  void wait_until(double time, comm::Lane lane) override;

  void copies(Way way, size_t bytes, void* stream) override;
  double time_of(void* stream) override;
  void hold_back(void* stream, double time) override;
  void host_waits(double time) override;

  void step(size_t index, const std::function<void()>& work) override;
  void await(size_t index) override;

  void begins(StepPhase phase) override;
  void ends(StepPhase phase) override;
  void acts(const comm::Action& action) override;

 private:
  struct ChunkSums {
    comm::StageTimes sums{.forward = 0, .backward_input = 0, .backward_weights = 0};
    std::array<int, 4> counts{};  // by ActionKind
  };

  struct HostObserver final : kernels::CallObserver {
    explicit HostObserver(StepClock& of) : clock(of) {}
    void around(const kernels::SlotCall& call) override { clock.around_on_host(call); }
    StepClock& clock;
  };

  void around_on_host(const kernels::SlotCall& call);
  double& host_now() { return is_stepping_ ? stepper_now_ : host_now_; }
  double copy_seconds(Way way, size_t bytes) const;
  void run_for(const std::string& what, const KernelTime& kernel);
  void add_host(int threads);
  void wait_for_host(double time);
  void advance(double seconds);
  void slow(double beside);  // by a collective that runs so long
  void wait(double seconds, comm::Lane lane);
  double beside_products(double seconds);
  void end_exchange();
  TimeParts reading() const;

  const Cluster& cluster_;
  KernelTimes& times_;
  const HostRates host_rates_;
  HostObserver host_observer_{*this};
  std::map<comm::Members, GroupSpread> spreads_;
  std::array<Basis, comm::kLanes> basis_{};  // of what was last queued in a lane
  double now_ = 0, began_ = 0;
  std::array<double, comm::kLanes> free_{};  // when a lane has done what was queued
  Pass pass_ = Pass::kAtOnce;
  // In place: processor time of this thread when it left the last kernel, what it spent since
  // between kernels, how many those were, and the threads of the last.
  std::optional<double> left_kernel_;
  double between_ = 0;
  int64_t calls_ = 0;
  int threads_ = 1;
  void* compute_stream_ = nullptr;
  std::map<void*, double> streams_;  // when each of the others has done what was queued
  // Of the host's two threads: that which queues, and that which steps what is offloaded.
  double host_now_ = 0, stepper_now_ = 0;
  bool is_stepping_ = false;
  std::map<size_t, double> stepped_;  // by shard
  // Of exchanges in pieces: how much of the last one is left to hide, and of the last product to
  // hide something beside.
  double left_ = 0, product_ = 0;
  comm::CollectiveOp op_ = comm::CollectiveOp::kBarrier;
  double pieces_ = 1;
  comm::Action action_;
  bool is_in_pipeline_ = false;
  double action_began_ = 0;
  TimeParts at_begin_;  // of an action, or a micro-batch
  int64_t micro_batches_ = 0, forwards_ = 0;
  std::map<int, ChunkSums> chunks_;
  RankTime time_;  // of the step that runs
  RankTime mean_;
};

}  // namespace shale::models
