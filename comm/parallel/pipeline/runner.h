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

// Options of the messages between pipeline stages.
struct PipelineOptions {
  Shape boundary = {};            // shape between two pieces, for one micro-batch on one mesh rank
  DType dtype = DType::kF32;      // dtype of activations and their gradients
  int slots = 2;                  // maximum unread messages per link; two overlap with computation
  HostedRanks* hosted = nullptr;  // mesh ranks whose tensors form one message; null: one rank
};

// Callbacks that run one micro-batch through the part of the model on a pipeline rank.
class PipelineWork {
 public:
  virtual ~PipelineWork() = default;
  // Runs pieces on x and returns their output. x is undefined for the model's first pieces. The
  // output of its last pieces is an f32 scalar, the sum of losses. Micro-batches of a chunk come in
  // ascending order. Called for each mesh rank in the process, inside HostedRanks::run().
  virtual Tensor forward(const PieceRange& pieces, int micro, const Tensor& x) = 0;
  // Called before gradients of a chunk's parameters are computed. last: it is the last such call
  // for the chunk in this step.
  virtual void before_backward(int chunk, bool last) = 0;
  // Called before and after each action. The time between them does not include the wait for
  // messages.
  virtual void begins(const Action&) {}
  virtual void ends(const Action&) {}
};

// Runs the actions of one pipeline rank, and sends activations and their gradients to other stages.
// A received tensor starts a new autograd history, so ops see the same as without a pipeline.
// Values and gradients therefore have the same bits.
class Pipeline {
 public:
  // group: the ranks of the pipeline, in order, for tensors in the context's memory. Context and
  // group must outlive this object. Collective over the group.
  Pipeline(Context& context, ProcessGroup& group, StagePlan plan, const PipelineOptions& options);
  ~Pipeline();
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  const StagePlan& plan() const { return plan_; }
  bool has_loss() const { return plan_.loss_rank() == group_.rank(); }

  // Runs a training step: forward and backward of all micro-batches. The rank with the last stage
  // returns their losses, detached; other ranks return nothing. step: number for messages, equal on
  // all ranks.
  std::vector<Tensor> run(int64_t step, PipelineWork& work);
  // Runs only the forward of one micro-batch. The rank with the last stage returns its loss; other
  // ranks return an undefined tensor.
  Tensor forward(int64_t step, int micro, PipelineWork& work);

 private:
  // State of a micro-batch in one chunk on one mesh rank, from its forward to the end of its
  // backward.
  struct Flight {
    Tensor root;                 // tensor at which backward starts
    std::shared_ptr<Tensor> dx;  // gradient of the chunk's input
    DeferredGrads rest;          // weight gradients left to kBackwardWeights
  };
  // A tensor that an action receives from, or sends to, another stage.
  struct Passage {
    bool is_there = false;  // false: the action has no such tensor
    bool forward = true;
    int stage = 0;  // stage that receives the tensor
  };
  struct Posted {
    Tensor x;
    Work work;
  };
  using Key = std::pair<bool, int>;  // direction (true: forward) and receiving stage

  void open_links();
  void act(const Action& action, PipelineWork& work);
  void run_forward(const Action& action, PipelineWork& work);
  void run_backward(const Action& action, PipelineWork& work);
  void run_weights(const Action& action, PipelineWork& work);

  Passage taken_by(const Action& action) const;
  Passage given_by(const Action& action) const;
  int rank_of(const Passage& passage) const;  // pipeline rank that receives the tensor
  MessageId id_of(const Passage& passage, int micro) const;
  void post(const Action& action);
  std::vector<Tensor> take(const Action& action);
  void give(const Action& action, const std::vector<Tensor>& of_ranks);
  // Calls body(flight, x, rank) for each mesh rank in this process. x: its part of the received
  // tensor.
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
  std::map<std::pair<int, int>, std::vector<Flight>> flights_;  // key: chunk, micro-batch
  std::map<std::pair<Key, int>, Posted> posted_;  // receives in flight; key: link, micro-batch
  std::map<Key, Posted> sent_;                    // last message of each link
  std::map<std::pair<Key, int>, std::vector<Tensor>> here_;  // tensors between chunks of this rank
  std::vector<Tensor> losses_;  // loss of each micro-batch
};

}  // namespace shale::comm
