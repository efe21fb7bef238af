#pragma once

#include <array>
#include <map>
#include <string>

#include "shale/comm/parallel/pipeline/simulate.h"
#include "shale/comm/simulated_clock.h"
#include "shale/models/plan/kernel_times.h"
#include "shale/models/training/step.h"

namespace shale::models {

// Where time goes, on a rank that waits for no other: in seconds.
struct TimeParts {
  double total = 0;
  std::map<std::string, double> kernels;       // by slot
  std::map<std::string, double> measured;      // of these, by times that were measured
  std::array<double, comm::kLanes> exposed{};  // that it waited for collectives, by lane
  std::array<double, kBases> by_basis{};       // of kernels and of what was exposed
  double slowed = 0;  // that kernels took longer for the collectives beside them

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
// What the host does between kernels takes no time.
class StepClock final : public kernels::CallObserver,
                        public comm::SimulatedClock,
                        public StepObserver {
 public:
  StepClock(const Cluster& cluster, KernelTimes& times) : cluster_(cluster), times_(times) {}

  bool measures() const { return times_.measures(); }

  void begin_step(int64_t micro_batches);
  RankTime end_step();

  void around(const kernels::SlotCall& call) override;
  double queue(const comm::CollectiveCall& call, const comm::Members& members,
               comm::Lane lane) override;
  void send(const View& message, int sender, int receiver) override;
  void wait_until(double time, comm::Lane lane) override;

  void begins(StepPhase phase) override;
  void ends(StepPhase phase) override;
  void acts(const comm::Action& action) override;

 private:
  struct ChunkSums {
    comm::StageTimes sums{.forward = 0, .backward_input = 0, .backward_weights = 0};
    std::array<int, 4> counts{};  // by ActionKind
  };

  void advance(double seconds);
  void slow(double beside);  // by a collective that runs so long
  void wait(double seconds, comm::Lane lane);
  double beside_products(double seconds);
  void end_exchange();
  TimeParts reading() const;

  const Cluster& cluster_;
  KernelTimes& times_;
  std::map<comm::Members, GroupSpread> spreads_;
  double now_ = 0, began_ = 0;
  std::array<double, comm::kLanes> free_{};  // when a lane has done what was queued
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
  RankTime time_;
};

}  // namespace shale::models
