#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "shale/comm/parallel/hosted_ranks.h"
#include "shale/comm/parallel/pipeline/stage_plan.h"
#include "shale/comm/process_group.h"
#include "shale/runtime/autograd/deferred.h"

namespace shale::comm {

// What the stages of a pipeline pass on.
struct PipelineOptions {
  Shape boundary = {};        // of a micro-batch between two pieces, on one mesh rank
  DType dtype = DType::kF32;  // of activations and their gradients
  int slots = 2;              // messages of a link that may wait to be taken; two hide transfers
  HostedRanks* hosted = nullptr;  // whose tensors are one message, in their order; null: one rank
};

// What a pipeline's rank does with a micro-batch of its own part of the model.
class PipelineWork {
 public:
  virtual ~PipelineWork() = default;
  // Runs pieces on x, undefined for the first ones of the model, and returns what they make: an f32
  // scalar, the sum of losses, for the last ones. Micro-batches of a chunk come in ascending order.
  // Called for each mesh rank of the process, inside of HostedRanks::run().
  virtual Tensor forward(const PieceRange& pieces, int micro, const Tensor& x) = 0;
  // Before gradients of a chunk's parameters are made. last: of the step.
  virtual void before_backward(int chunk, bool last) = 0;
  // Around each action, without the waiting for its messages.
  virtual void begins(const Action&) {}
  virtual void ends(const Action&) {}
};

// Runs the actions of one rank of a pipeline, and passes activations and their gradients on. What
// comes from another stage is a tensor with a history of its own, so that ops see what they would
// see without a pipeline, and values and gradients have the same bits.
class Pipeline {
 public:
  // group: the ranks of the pipeline, in order, for the context's memory. Context and group outlive
  // this. Collective over the group.
  Pipeline(Context& context, ProcessGroup& group, StagePlan plan, const PipelineOptions& options);
  ~Pipeline();
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  const StagePlan& plan() const { return plan_; }
  bool has_loss() const { return plan_.loss_rank() == group_.rank(); }

  // A training step, forward and backward of all micro-batches: their losses, detached, on the rank
  // that has the last stage; nothing on others. step: for messages, the same on all ranks.
  std::vector<Tensor> run(int64_t step, PipelineWork& work);
  // The forward of one micro-batch alone: its loss on the rank that has the last stage, else
  // undefined.
  Tensor forward(int64_t step, int micro, PipelineWork& work);

 private:
  // A micro-batch between its forward and the end of its backward in one chunk, on one mesh rank.
  struct Flight {
    Tensor root;                 // what backward begins with
    std::shared_ptr<Tensor> dx;  // of what the chunk was given
    DeferredGrads rest;          // between kBackwardInput and kBackwardWeights
  };
  // What an action takes from another stage, or gives to one.
  struct Passage {
    bool is_there = false;  // false: the action takes or gives nothing
    bool forward = true;
    int stage = 0;  // that takes it
  };
  struct Posted {
    Tensor x;
    Work work;
  };
  using Key = std::pair<bool, int>;  // forward, stage that takes

  void open_links();
  void act(const Action& action, PipelineWork& work);
  void run_forward(const Action& action, PipelineWork& work);
  void run_backward(const Action& action, PipelineWork& work);
  void run_weights(const Action& action, PipelineWork& work);

  Passage taken_by(const Action& action) const;
  Passage given_by(const Action& action) const;
  int rank_of(const Passage& passage) const;  // who takes it
  MessageId id_of(const Passage& passage, int micro) const;
  void post(const Action& action);
  std::vector<Tensor> take(const Action& action);
  void give(const Action& action, const std::vector<Tensor>& of_ranks);
  // Calls body(flight, x) for each mesh rank, with its part of what the action takes.
  using RankBody = std::function<void(Flight& flight, Tensor x, size_t rank)>;
  void for_ranks(const Action& action, std::vector<Tensor> taken, const RankBody& body);
  Shape message_shape() const;
  size_t ranks_here() const {
    return options_.hosted != nullptr ? static_cast<size_t>(options_.hosted->count()) : 1;
  }
  void finish_sends();
  std::vector<Flight>& flights(const Action& action) {
    return flights_[{action.chunk, action.micro}];
  }

  Context& context_;
  ProcessGroup& group_;
  const StagePlan plan_;
  const PipelineOptions options_;
  std::map<Key, std::unique_ptr<PipeLink>> sends_, receives_;
  int64_t step_ = 0;
  std::map<std::pair<int, int>, std::vector<Flight>> flights_;  // by chunk and micro-batch
  std::map<std::pair<Key, int>, Posted> posted_;            // and micro-batch
  std::map<Key, Posted> sent_;                              // the last message of each link
  std::map<std::pair<Key, int>, std::vector<Tensor>> here_;  // between chunks of this rank
  std::vector<Tensor> losses_;                              // by micro-batch
};

}  // namespace shale::comm
