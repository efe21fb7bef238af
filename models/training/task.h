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

struct RunConfig;

// How a run counts its samples and measures throughput.
struct SampleUnit {
  std::string samples = "samples";  // for log lines, such as "sequences of 256 tokens"
  std::string items = "samples";    // for metrics, such as "tokens"
  std::string item = "samples";     // for progress lines, such as "tok"
  int64_t items_per_sample = 1;
  double flops_per_item = 0;  // FLOPs of forward and backward per item; 0: unknown
};

// Selects the training batches of a rank.
struct BatchPlan {
  BatchLayout layout;
  int64_t rank = 0;  // see DataRanks::rank
  int64_t first_step = 0;
};

// Result of Task::evaluate(). All ranks have the same.
struct Evaluation {
  double loss = 0;    // mean over all items of all ranks
  int64_t items = 0;  // number of items (SampleUnit::items), without padding
  // Top-k accuracy of a classifier; key: k.
  std::map<int64_t, double> top_k = {};
  std::map<std::string, double> more = {};  // other results of the task, by name
};

// Objects of a rank that a task uses during a run.
struct TaskContext {
  Context& context;
  comm::ProcessGroup& group;  // group of all ranks
  const DataRanks& data;
  comm::DataParallel& parallel;
  // Returns Task::loss() of a micro-batch, for evaluation. In a pipeline all ranks must call it,
  // and only the ranks of DataRanks::losses get a defined tensor.
  std::function<Tensor(const DeviceBatch& batch)> loss;
  // Calls its argument while the parameters have the values of their average. If there is no
  // average, they keep their values. Collective.
  std::function<void(const std::function<void()>& use)> with_average =
      [](const std::function<void()>& use) { use(); };
  // Reports a text under a tag "group/name". Only the text of rank 0 is used.
  std::function<void(const std::string& tag, std::string_view text)> tell = [](const std::string&,
                                                                               std::string_view) {};
  // Reports a picture for TensorBoard. Empty if no report shows pictures.
  std::function<void(const std::string& tag, const Image& picture)> show = {};
};

// Everything that is specific to what is trained: a model, data, a loss. The Trainer does the rest:
// steps, checkpoints, metrics, ranks. All ranks have equal tasks.
class Task {
 public:
  virtual ~Task() = default;

  // Returns the model, whose parameters have no memory yet, and its repeated layers in order. Data
  // parallelism and recomputation treat each of these layers as a unit.
  virtual Module& model() = 0;
  virtual std::vector<Module*> units() = 0;
  // Returns the number of elements of the whole model's parameters. Call it before the model is
  // sharded.
  virtual int64_t parameters();
  // Returns another task with the same model and data, which are not opened again, for a run with
  // other options. Plans need one, because they leave a task's parameters without memory. The
  // default throws UnavailableError; then memory is not checked before a run.
  virtual std::unique_ptr<Task> twin(const RunConfig& run) const;
  // Returns how the model is sharded along the parallel axes.
  virtual comm::ModelPlan plan() const { return {}; }
  // Makes additional models if this process hosts several mesh ranks, and shards all models. Call
  // it before the model has memory; `parallel` must outlive this. Collective.
  void cut(comm::Parallel& parallel);
  // Returns the models of all mesh ranks of this process, starting with model().
  std::vector<Module*> models();
  // Called once the model has memory, for new and resumed runs. Collective.
  virtual void prepare(const TaskContext&) {}
  // Sets initial values of parameters, in new runs only. Collective.
  virtual void initialize(const TaskContext&) {}

  // Returns the number of training samples after which the data repeats; 0: never.
  virtual int64_t samples_per_epoch() const { return 0; }
  // Makes an endless source of training micro-batches, which depend only on the plan. Called on
  // RunConfig::workers separate threads.
  virtual BatchSource train_batches(const BatchPlan& plan) = 0;
  // Returns the sum of a micro-batch's losses, an f32 scalar; padding rows contribute 0.
  virtual Tensor loss(const DeviceBatch& batch) = 0;
  // Returns the model as a list of pieces, for pipelines; empty: not supported.
  virtual std::vector<nn::Piece> pieces() { return {}; }
  // Runs some of the pieces. x: output of the previous piece; undefined for the first piece.
  // run_pieces() and boundary() are called only if pieces() is not empty.
  virtual Tensor run_pieces(const comm::PieceRange& some, const Tensor& x,
                            const DeviceBatch& batch);
  // Returns the shape of the tensor between two pieces on a mesh rank, for `samples` samples.
  virtual Shape boundary(int64_t samples) const;
  // Makes the counters of forward on this rank; null: none. The context must outlive them.
  virtual std::unique_ptr<StepTally> tally(Context&) { return nullptr; }
  // Adds a step's tally of all ranks to its metrics.
  virtual void describe_tally(const std::vector<int32_t>&, StepMetrics&) const {}
  // Returns the divisor of the sum of a step's losses over all micro-batches and ranks.
  virtual double step_weight(int64_t step) const = 0;

  // Throws DataError if there is nothing to evaluate.
  virtual void check_evaluation() const = 0;
  // Evaluates the model on the validation data. Collective.
  virtual Evaluation evaluate(const TaskContext& run) = 0;
  // Shows what the model has learned after each validation, for example with samples. Collective.
  virtual void show(const TaskContext&, int64_t /*step*/) {}
  // Creates the folders that finish() writes to; called on rank 0, before training. Throws
  // DiskError.
  virtual void open_output() {}
  // Called after the last step, for exports and samples. Collective.
  virtual void finish(const TaskContext&) {}

  // Returns a command that tries out the model in the folder `out`, for the end of the log; may be
  // empty.
  virtual std::string command_to_try(const std::string& /*out*/) const { return {}; }

  virtual SampleUnit unit() const = 0;
  // Returns lines for the log.
  virtual std::vector<std::string> summary() const = 0;
  // Returns values that must be equal on all ranks. Messages begin with their names, such as "data:
  // corpus/".
  virtual std::map<std::string, std::string> same_on_all_ranks() const = 0;
  // Returns properties of the model and the data ("model shape", "training data"), as JSON values.
  // Checkpoints store them, and they must be equal in a resumed run. Names contain a space.
  virtual std::map<std::string, std::string> facts() const = 0;
  // Returns checksums of the data; the task chooses their names, such as "training data". They must
  // be equal on all ranks. A resumed run must have the same checksums as its checkpoint, if both
  // have them. Without checksums, changed content under the same file names is not detected.
  virtual std::map<std::string, std::string> data_checksums() const = 0;
  // Returns small files, by name, for checkpoints to store. Only those of rank 0 are used.
  virtual std::map<std::string, std::string> attachments() const { return {}; }

 protected:
  // Makes another model like model(), for a process that hosts several mesh ranks. The default
  // throws ConfigError.
  virtual std::unique_ptr<Module> make_model() const;
  // Returns the model of the mesh rank that is running (comm::HostedRanks), or the model of the
  // first mesh rank if none is running.
  Module& here();
  // Returns the rows of the mesh rank that is running. `field`: field of a batch with the rows of
  // all mesh ranks.
  Tensor own_rows(const Tensor& field) const;
  const comm::Parallel* parallel() const { return parallel_; }  // null before cut()

 private:
  comm::Parallel* parallel_ = nullptr;
  // Models of all mesh ranks of this process but the first.
  std::vector<std::unique_ptr<Module>> further_;
};

// Returns the pieces of `all` that are in a range.
inline std::span<const nn::Piece> pieces_in(std::span<const nn::Piece> all,
                                            const comm::PieceRange& range) {
  return all.subspan(static_cast<size_t>(range.first),
                     static_cast<size_t>(range.end - range.first));
}

}  // namespace shale::models
