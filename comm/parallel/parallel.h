#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "shale/comm/mesh.h"
#include "shale/comm/parallel/data/sharding.h"
#include "shale/comm/parallel/hosted_exchange.h"
#include "shale/comm/parallel/hosted_models.h"
#include "shale/comm/parallel/mesh_distribution.h"
#include "shale/comm/parallel/pipeline/stage_plan.h"

namespace shale::comm {

// Over how many mesh ranks a model is trained, along each axis (docs/parallelism.md).
struct Degrees {
  int replica = 1;   // copies of what `shard` shares
  int shard = 0;     // that share the training state; 0: what the other axes leave
  int tensor = 1;    // parts of a layer
  int context = 1;   // parts of a sequence
  int expert = 1;    // groups of experts, of the ranks of shard, context and tensor
  int pipeline = 1;  // stages
  // Mesh ranks of these two axes that one process has: divisors of them, and powers of two. Results
  // have the same bits for any number.
  int tensor_here = 1, context_here = 1;

  int here() const { return tensor_here * context_here; }
  // Processes that work on one micro-batch.
  int64_t model_processes() const {
    return int64_t{pipeline} * (context / context_here) * (tensor / tensor_here);
  }
};

// Degrees with which so many processes train what `wanted` describes. Tensor and context, on which
// results depend, stay: a process hosts ranks of these axes where there are fewer processes than
// ranks. Pipeline and replica shrink to divisors that fit, and shard is what is left. Throws
// ConfigError if no number of hosted ranks fits, and for a shard that is more than wanted.
Degrees fit_degrees(const Degrees& wanted, int processes);

// Over how many processes each axis goes.
ParallelSizes process_sizes(const Degrees& degrees);

// How the axes do their work. Bits depend on `row_pieces` and `context_kind` alone.
struct ParallelOptions {
  bool overlap = true;  // collectives inside layers run while others are computed
  int row_pieces = 0;   // of the rows of a layer, at most (Exchange::row_pieces())
  ContextKind context_kind = ContextKind::kGather;
  int context_group = 0;  // of kUlyssesRing: ranks next to each other that trade heads; 0: as many
                          // as divide the heads of keys
  int reshard = 0;        // ranks of ShardGroups::reshard; 0: none
  // Optimizers put together the parts of matrices (ShardGroups::shard_and_tensor).
  bool joins_matrices = false;
};

// What a model has that the axes inside of it share. How tensor ranks share its layers, these say
// themselves (Parameter::split).
struct ModelPlan {
  // Between its layers a rank has whole samples, for models that look at all of one there:
  // micro-batches have a multiple of the tensor ranks of them. Else it has slices of the rows.
  bool has_whole_samples = false;
  int64_t tokens = 0;     // of its sequences; 0: it has none that can be cut
  int64_t key_heads = 1;  // of the layers that see these sequences, whole
};

// The mesh of a training run: groups of processes, the mesh ranks that this process hosts, and what
// their models exchange. Errors are ConfigError in terms of Degrees.
class Parallel {
 public:
  // Collective over `all`, which outlives this, as the context does.
  Parallel(ProcessGroup& all, Context& context, const Degrees& degrees,
           const ParallelOptions& options = {});
  ~Parallel();
  Parallel(const Parallel&) = delete;
  Parallel& operator=(const Parallel&) = delete;

  const Degrees& degrees() const { return degrees_; }  // `shard` is filled in
  // Of the processes: axes "replica", "pipeline", "shard", "context", "tensor".
  Mesh& mesh() { return mesh_; }
  Context& context() { return context_; }
  // Ranks of data parallelism, which have samples of their own, and the number of this one.
  int data_ranks() const { return degrees_.replica * degrees_.shard; }
  int data_rank() const;
  // Of this process. Outlives what its models do.
  HostedRanks& hosted() { return hosted_; }
  // For DataParallel, complete after cut().
  const ShardGroups& groups() const { return groups_; }

  // Gives each model its mesh rank's part: of layers, sequences and experts. models: one for each
  // rank of hosted(), alike, without memory; they outlive the use of this. All tensor and context
  // ranks then get batches of the same samples, of which context ranks have their tokens alone
  // (sequence_parts()), and make the same losses. Tokens may meet in attention of nn/ alone.
  // Collective. Throws CommError if the models of processes differ.
  void cut(const std::vector<Module*>& models, const ModelPlan& plan);
  template <typename Model>
  void cut(const std::vector<std::unique_ptr<Model>>& models, const ModelPlan& plan) {
    std::vector<Module*> all;
    for (const auto& model : models) all.push_back(model.get());
    cut(all, plan);
  }
  // One model for each rank of hosted(), made and cut.
  template <typename Model>
  std::vector<std::unique_ptr<Model>> build(const ModelPlan& plan,
                                            const std::function<std::unique_ptr<Model>()>& make) {
    std::vector<std::unique_ptr<Model>> models;
    for (int rank = 0; rank < hosted_.count(); ++rank) models.push_back(make());
    cut(models, plan);
    return models;
  }
  // After cut(): the stages of a pipeline, of the first model's pieces. Collective.
  void stage(std::span<const nn::Piece> pieces, const StagePlan& plan, bool shards_states);

  // Whether batches have parts of sequences; then what this process has of each, of all its context
  // ranks.
  bool cuts_sequences() const { return !sequences_.empty(); }
  SequenceParts sequence_parts() const;
  // Of a field [n B, ...] of a batch that has parts of sequences of all context ranks here, those
  // of the mesh rank that runs, [B, ...]: a view. Undefined stays undefined.
  Tensor own_rows(const Tensor& field) const;
  // Copies to the device what the mesh rank that runs has of whole sequences of token ids in host
  // memory, [sequences, T]: i32 [sequences, own_tokens()], or [sequences, T] if nothing is cut.
  // `padding` follows the last token where sequences are cut: for targets kernels::kIgnoreTarget.
  // Throws ShapeError for sequences of another length than ModelPlan::tokens that are cut.
  Tensor own_part(std::span<const int32_t> tokens, int64_t sequences, int32_t padding = 0) const;
  // Tokens that a mesh rank has of a sequence of ModelPlan::tokens, after cut().
  int64_t own_tokens() const;
  // The group of the axis along which layers exchange, for reports; null: none does.
  ProcessGroup* layers() const { return layers_.get(); }
  ProcessGroup* tokens() const { return tokens_.get(); }
  ProcessGroup* rows() const { return rows_.get(); }

 private:
  // The place of a mesh rank in a line.
  struct Place {
    std::shared_ptr<MeshLine> line;
    int member = 0;
  };
  // By hosted rank; `heads` and `ring` are of kUlyssesRing.
  struct SequenceLines {
    std::vector<Place> all, heads, ring;
  };
  void cut_layers(const std::vector<Module*>& models, const ModelPlan& plan);
  void cut_sequences(const std::vector<Module*>& models, const ModelPlan& plan);
  void check_sequences(Module& model, int64_t tokens) const;
  SequenceLines sequence_lines(int64_t key_heads);
  int context_group(int64_t key_heads) const;

  Context& context_;
  const Degrees degrees_;
  const ParallelOptions options_;
  const int rank_;
  Mesh mesh_;
  HostedRanks hosted_;
  ShardGroups groups_;
  int64_t tokens_of_sequences_ = 0;  // ModelPlan::tokens
  std::unique_ptr<Mesh> reshard_;    // axes "outer" and "inner"; null: no smaller group
  std::unique_ptr<Mesh> expert_;     // axes "same" and "expert"
  // Of layers' collectives, in Lane::kModel: those must not wait for gradients that are queued.
  std::shared_ptr<ProcessGroup> layers_, tokens_, rows_;
  std::vector<std::unique_ptr<Exchange>> tensor_;        // by hosted rank
  std::vector<std::unique_ptr<CutSequence>> sequences_;  // likewise
  std::unique_ptr<ExpertExchange> experts_;
  std::vector<std::unique_ptr<MeshDistribution>> distributions_;  // by hosted rank
  std::unique_ptr<HostedModels> models_;
  std::unique_ptr<StageGroups> stages_;
};

}  // namespace shale::comm
