#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>

#include "shale/comm/parallel/pipeline/simulate.h"
#include "shale/models/plan/time/kernel_times.h"

namespace shale::models {

// Time of a rank by its causes, in seconds, if the rank waits for no other rank.
struct TimeParts {
  double total = 0;
  std::map<std::string, double> kernels;       // seconds by the kernel's slot
  std::map<std::string, double> measured;      // measured seconds in `kernels`
  std::array<double, comm::kLanes> exposed{};  // waits for collectives, by lane
  std::array<double, comm::kLanes> fitted{};   // seconds in `exposed` with fitted times
  // Seconds in `kernels` and `exposed` by how they were found.
  std::array<double, kBases> by_basis{};
  double host = 0;                             // host time before kernel launches
  double slowed = 0;                           // slowdown of kernels by concurrent collectives
  double exposed_host = 0;  // device waiting for copies from the host, or for the host's work
  // Time of offloading, concurrent with the device: copies in each direction, and kernels on the
  // host.
  double to_host = 0, from_host = 0, on_host = 0;

  // Adds the difference between the readings `from` and `to`, multiplied by `times`.
  void add(const TimeParts& from, const TimeParts& to, double times);
};

// Time of one step of a rank.
struct RankTime : TimeParts {
  double acting = 0;  // part of `total` spent in forward and backward
  // In pipelines: time per micro-batch of each chunk, and time of a message to the next stage.
  std::map<int, comm::StageTimes> chunks;
  double message = 0;
  // Time of the last but one micro-batch, if there are at least three. It is the time that one more
  // micro-batch between the first and the last would add.
  TimeParts middle;
  std::map<int, comm::StageTimes> middle_chunks;

  // Adds `other` multiplied by `share`, but replaces chunks and messages.
  void add_share(const RankTime& other, double share);
};

// Returns the time of a step with `to` micro-batches, given `time`, that of the same step with
// `from` micro-batches.
RankTime with_micro_batches(RankTime time, int64_t from, int64_t to);

// Simulated clock of a planned rank. The rank reports each kernel and collective in issue order,
// and the clock determines when it would run:
// - Kernels run in one stream. Collectives run concurrently with kernels and slow them down
//   (Cluster::overlap_tax). Collectives of a lane run one after another.
// - Host time between kernels is zero unless kernels are measured. Then it is the time that the dry
//   run itself spends between kernels, because it has the tape, allocator and modules of the run.
// - The host of a GPU runs kernels on two threads: the thread that launches the device's kernels,
//   and the thread that steps the offloaded optimizer.
// - Copies of a stream run one after another. Copies of streams other than the compute stream
//   overlap the kernels of device and host.
class StepClock final : public RehearsalClock {
 public:
  // ranks: number of ranks of the run. The ranks of a node share its host.
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
  void slow(double beside);  // adds the slowdown by a collective during `beside` seconds
  void wait(double seconds, comm::Lane lane);
  double beside_products(double seconds);
  void end_exchange();
  TimeParts reading() const;

  const Cluster& cluster_;
  KernelTimes& times_;
  const HostRates host_rates_;
  HostObserver host_observer_{*this};
  std::map<comm::Members, GroupSpread> spreads_;
  std::array<Basis, comm::kLanes> basis_{};  // how the time of each lane's last operation was found
  double now_ = 0, began_ = 0;
  std::array<double, comm::kLanes> free_{};  // time at which each lane has done all queued work
  Pass pass_ = Pass::kAtOnce;
  // State of the pass kInPlace: processor time of this thread at the end of the last kernel, total
  // time between kernels, number of intervals between kernels, threads of the last kernel.
  std::optional<double> left_kernel_;
  double between_ = 0;
  int64_t calls_ = 0;
  int threads_ = 1;
  void* compute_stream_ = nullptr;
  std::map<void*, double> streams_;  // time at which each stream has done all queued work
  // Times of the host's two threads: the one that launches kernels, and the one that steps
  // offloaded shards.
  double host_now_ = 0, stepper_now_ = 0;
  bool is_stepping_ = false;
  std::map<size_t, double> stepped_;  // time at which each shard's optimizer step ends
  // For exchanges in pieces: duration of the last exchange that no GEMM has hidden yet; duration of
  // the last GEMM that can still hide an exchange.
  double left_ = 0, product_ = 0;
  comm::CollectiveOp op_ = comm::CollectiveOp::kBarrier;
  double pieces_ = 1;
  comm::Action action_;
  bool is_in_pipeline_ = false;
  double action_began_ = 0;
  TimeParts at_begin_;  // reading at the beginning of an action or a micro-batch
  int64_t micro_batches_ = 0, forwards_ = 0;
  std::map<int, ChunkSums> chunks_;
  RankTime time_;  // time of the current step
  RankTime mean_;
};

}  // namespace shale::models
