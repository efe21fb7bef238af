#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shale/comm/parallel/data/data_parallel.h"
#include "shale/comm/parallel/parallel.h"
#include "shale/models/training/data_ranks.h"
#include "shale/models/training/report/metrics.h"
#include "shale/models/training/step_tally.h"
#include "shale/runtime/data/device_batch.h"
#include "shale/runtime/data/images/image.h"
#include "shale/runtime/data/prefetch.h"
#include "shale/runtime/data/sampler.h"
#include "shale/runtime/nn/module.h"
#include "shale/runtime/nn/piece.h"

namespace shale::models {

// What a run counts: its samples, and what throughput is measured in.
struct SampleUnit {
  std::string samples = "samples";  // in a log line: "sequences of 256 tokens"
  std::string items = "samples";    // in metrics: "tokens"
  std::string item = "samples";     // in progress: "tok"
  int64_t items_per_sample = 1;
  double flops_per_item = 0;  // of forward and backward; 0: unknown
};

// Which of the training batches are a rank's, from which step on.
struct BatchPlan {
  BatchLayout layout;
  int64_t rank = 0;  // DataRanks::rank
  int64_t first_step = 0;
};

// What Task::evaluate() finds, on all ranks.
struct Evaluation {
  double loss = 0;    // mean over all items of all ranks
  int64_t items = 0;  // over so many, in SampleUnit::items: those that were counted, not padding
  // Of a classifier, by k: the share of items whose class is among the k that score highest.
  std::map<int64_t, double> top_k = {};
};

// What a rank has at hand where a task takes part in a run.
struct TaskContext {
  Context& context;
  comm::ProcessGroup& group;  // of all ranks
  const DataRanks& data;
  comm::DataParallel& parallel;
  // Task::loss() of a micro-batch of an evaluation; in a pipeline undefined, but for the ranks of
  // DataRanks::losses. All ranks of a pipeline call it.
  std::function<Tensor(const DeviceBatch& batch)> loss;
  // Calls what it is given while parameters are their average, or as they are where none is kept.
  // Collective.
  std::function<void(const std::function<void()>& use)> with_average =
      [](const std::function<void()>& use) { use(); };
  // Shows a text where the run's report goes, under a tag "group/name"; rank 0's is shown.
  std::function<void(const std::string& tag, std::string_view text)> tell = [](const std::string&,
                                                                               std::string_view) {};
  // The same of a picture, for TensorBoard; empty where nobody would see it.
  std::function<void(const std::string& tag, const Image& picture)> show = {};
};

// What is trained: a model, data, a loss. The Trainer does the rest: steps, checkpoints, metrics,
// the ranks. All ranks have equal tasks.
class Task {
 public:
  virtual ~Task() = default;

  // The model, whose parameters have no memory yet, and its repeated parts in order: the units of
  // data parallelism, and of recomputation.
  virtual Module& model() = 0;
  virtual std::vector<Module*> units() = 0;
  // What the axes inside of the model share of it.
  virtual comm::ModelPlan plan() const { return {}; }
  // Makes further models for the mesh ranks of this process, and cuts all of them. Before the model
  // has memory; `parallel` outlives this. Collective.
  void cut(comm::Parallel& parallel);
  // The models of all mesh ranks of this process, the first one first.
  std::vector<Module*> models();
  // Once the model has memory, whether the run begins or goes on. Collective.
  virtual void prepare(const TaskContext&) {}
  // Gives parameters other values than their initial ones, in a run that begins. Collective.
  virtual void initialize(const TaskContext&) {}

  // Makes training batches: endless, micro-batch after micro-batch, a pure function of the plan.
  // It is called on threads of its own, RunConfig::workers of them.
  virtual BatchSource train_batches(const BatchPlan& plan) = 0;
  // The sum of a micro-batch's losses, an f32 scalar; padding rows count 0.
  virtual Tensor loss(const DeviceBatch& batch) = 0;
  // The same as a list of pieces, for a pipeline; empty: the model is none.
  virtual std::vector<nn::Piece> pieces() { return {}; }
  // Runs some of them, on what the one before them has made; undefined for the first. Called if
  // there are pieces, as the next.
  virtual Tensor run_pieces(const comm::PieceRange& some, const Tensor& x,
                            const DeviceBatch& batch);
  // The shape of what goes from one piece to the next on a mesh rank, of so many samples.
  virtual Shape boundary(int64_t samples) const;
  // What forward counts besides, on this rank; null: nothing. The context outlives it.
  virtual std::unique_ptr<StepTally> tally(Context&) { return nullptr; }
  // Adds to a step's row what its tally, of all ranks, says.
  virtual void describe_tally(const std::vector<int32_t>&, StepMetrics&) const {}
  // Over what the losses of all micro-batches of all ranks in a step are averaged.
  virtual double step_weight(int64_t step) const = 0;

  // Throws DataError if there is nothing to evaluate.
  virtual void check_evaluation() const = 0;
  // Collective.
  virtual Evaluation evaluate(const TaskContext& run) = 0;
  // Makes samples, or whatever else shows how far the run is, after each validation. Collective.
  virtual void show(const TaskContext&, int64_t /*step*/) {}
  // On rank 0, before training: makes the folders that finish() writes to. Throws DiskError.
  virtual void open_output() {}
  // What follows the last step: exports, samples. Collective.
  virtual void finish(const TaskContext&) {}

  virtual SampleUnit unit() const = 0;
  // A line each for the log.
  virtual std::vector<std::string> summary() const = 0;
  // What must be the same on all ranks: names, as messages begin ("data: corpus/"), and values.
  virtual std::map<std::string, std::string> same_on_all_ranks() const = 0;
  // What a checkpoint says of the run besides its options, and what a resumed run must find the
  // same: names with a space in them, and values as JSON.
  virtual std::map<std::string, std::string> facts() const = 0;
  // What is in the data, by whatever name the task calls it ("training data"), as checksums. All
  // ranks must have the same; so must a resumed run, as far as it and its checkpoint know them.
  // Without them, other content under the same names is trained on without a word.
  virtual std::map<std::string, std::string> data_checksums() const = 0;
  // Small files that a checkpoint carries, by their names; rank 0's.
  virtual std::map<std::string, std::string> attachments() const { return {}; }

 protected:
  // Another model like model(), for each further mesh rank that this process hosts. Of a task
  // without it: throws ConfigError.
  virtual std::unique_ptr<Module> make_model() const;
  // The model of the mesh rank that runs (comm::HostedRanks), or the first.
  Module& here();
  // What that rank has of a field of a batch that has the tokens of all.
  Tensor own_rows(const Tensor& field) const;
  const comm::Parallel* parallel() const { return parallel_; }  // null before cut()

 private:
  comm::Parallel* parallel_ = nullptr;
  std::vector<std::unique_ptr<Module>> further_;  // models, of mesh ranks but the first
};

// Some of a model's pieces.
inline std::span<const nn::Piece> pieces_in(std::span<const nn::Piece> all,
                                            const comm::PieceRange& range) {
  return all.subspan(static_cast<size_t>(range.first),
                     static_cast<size_t>(range.end - range.first));
}

}  // namespace shale::models
