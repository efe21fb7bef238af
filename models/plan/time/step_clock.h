#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>

#include "shale/comm/parallel/pipeline/simulate.h"
#include "shale/models/plan/time/kernel_times.h"

namespace shale::models {

// Breakdown of the time of a rank that waits for no other rank, in seconds.
struct TimeParts {
  double total = 0;
  std::map<std::string, double> kernels;       // seconds by slot
  std::map<std::string, double> measured;      // part of `kernels` with measured times
  std::array<double, comm::kLanes> exposed{};  // waiting for collectives, by lane
  std::array<double, comm::kLanes> fitted{};   // part of `exposed` with fitted times
  std::array<double, kBases> by_basis{};       // seconds of kernels and `exposed`, by basis
  double host = 0;                             // host time before kernel launches
  double slowed = 0;                           // slowdown of kernels by concurrent collectives
  double exposed_host = 0;  // device waiting for copies from the host, or for the host's work
  // Offload, concurrent with the device: copies in each direction, and kernels on the host.
  double to_host = 0, from_host = 0, on_host = 0;

  // Adds `times` times the difference between two readings.
  void add(const TimeParts& from, const TimeParts& to, double times);
};

// Time of one step of a rank.
struct RankTime : TimeParts {
  double acting = 0;  // part of `total` spent in forward and backward
  // Pipelines: time per micro-batch by chunk, and time of a message to the next stage.
  std::map<int, comm::StageTimes> chunks;
  double message = 0;
  // Time of the last but one micro-batch, if there are at least three: what one more micro-batch
  // between the first and the last would add.
  TimeParts middle;
  std::map<int, comm::StageTimes> middle_chunks;

  // Adds `share` times `other`; chunks and messages are replaced.
  void add_share(const RankTime& other, double share);
};

// Returns the time of a step of `to` micro-batches, given that of an equal step of `from`.
RankTime with_micro_batches(RankTime time, int64_t from, int64_t to);

// Simulated clock of a planned rank. The rank reports each kernel and collective in issue order;
// the clock says when it would run. There is one stream of kernels. Collectives run concurrently,
// those of a lane one after another, and slow kernels down (Cluster::overlap_tax). Host time
// between kernels is zero unless kernels are measured: then it is the time that the dry run itself
// spends between them, as its tape, allocator and modules are the run's. The host of a GPU also
// runs kernels: on the thread that launches the device's work, and on the thread that steps the
// offloaded optimizer. Copies on other streams than the compute stream overlap both; copies of one
// stream run one after another.
class StepClock final : public RehearsalClock {
 public:
  // `ranks`: number of ranks of the run. The ranks of a node share its host.
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
    std::array<int, 4> counts{};  // number of actions by ActionKind
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
  void slow(double beside);  // adds the slowdown by a collective that overlaps for `beside` seconds
  void wait(double seconds, comm::Lane lane);
  double beside_products(double seconds);
  void end_exchange();
  TimeParts reading() const;

  const Cluster& cluster_;
  KernelTimes& times_;
  const HostRates host_rates_;
  HostObserver host_observer_{*this};
  std::map<comm::Members, GroupSpread> spreads_;
  std::array<Basis, comm::kLanes> basis_{};  // basis of the last operation in each lane
  double now_ = 0, began_ = 0;
  std::array<double, comm::kLanes> free_{};  // by lane: time when all queued work is done
  Pass pass_ = Pass::kAtOnce;
  // Pass kInPlace: processor time of this thread at the end of the last kernel, accumulated time
  // between kernels, number of those intervals, and threads of the last kernel.
  std::optional<double> left_kernel_;
  double between_ = 0;
  int64_t calls_ = 0;
  int threads_ = 1;
  void* compute_stream_ = nullptr;
  std::map<void*, double> streams_;  // by stream: time when all queued work is done
  // Times of the host's two threads: the launching one, and the one that steps offloaded shards.
  double host_now_ = 0, stepper_now_ = 0;
  bool is_stepping_ = false;
  std::map<size_t, double> stepped_;  // end of the optimizer step, by shard
  // For exchanges in pieces: the time of the last exchange that no GEMM has hidden yet, and the
  // time of the last GEMM that can still hide an exchange.
  double left_ = 0, product_ = 0;
  comm::CollectiveOp op_ = comm::CollectiveOp::kBarrier;
  double pieces_ = 1;
  comm::Action action_;
  bool is_in_pipeline_ = false;
  double action_began_ = 0;
  TimeParts at_begin_;  // reading at the begin of an action or a micro-batch
  int64_t micro_batches_ = 0, forwards_ = 0;
  std::map<int, ChunkSums> chunks_;
  RankTime time_;  // time of the current step
  RankTime mean_;
};

}  // namespace shale::models
