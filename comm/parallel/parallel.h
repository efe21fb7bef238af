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

// Number of mesh ranks along each axis of a training run (docs/explanation/parallelism.md). A mesh
// rank is one position in the mesh; a process may host several of them.
struct Degrees {
  int replica = 1;   // copies of the training state, each over `shard` ranks
  int shard = 0;     // ranks that shard the training state; 0: number of ranks / the other degrees
  int tensor = 1;    // ranks that share each layer
  int context = 1;   // ranks that share each sequence
  int expert = 1;    // ranks that share experts; they are shard, context and tensor ranks
  int pipeline = 1;  // pipeline stages
  // Mesh ranks of these two axes in each process. Must be powers of two that divide the degrees.
  // Results have the same bits for any number.
  int tensor_here = 1, context_here = 1;

  int here() const { return tensor_here * context_here; }
  // Number of processes that work on one micro-batch.
  int64_t model_processes() const {
    return int64_t{pipeline} * (context / context_here) * (tensor / tensor_here);
  }
};

// Adapts degrees to `processes` processes. Tensor and context degrees affect results and stay as
// they are; if there are fewer processes than mesh ranks, a process has several ranks of these
// axes. Pipeline and replica shrink to divisors that fit; shard gets all remaining processes.
// Throws ConfigError if no number of ranks per process fits, or if more than wanted.shard processes
// remain.
Degrees fit_degrees(const Degrees& wanted, int processes);

// Number of processes along each axis.
ParallelSizes process_sizes(const Degrees& degrees);

// Options of tensor and context parallelism. Only `row_pieces` and `context_kind` can change the
// bits of results.
struct ParallelOptions {
  bool overlap = true;  // overlap collectives inside layers with computation
  int row_pieces = 0;   // maximum number of pieces of a layer's rows (Exchange::row_pieces())
  ContextKind context_kind = ContextKind::kGather;
  int context_group = 0;  // kUlyssesRing: adjacent ranks that exchange heads; 0: the most
  int reshard = 0;  // number of ranks of ShardGroups::reshard; 0: no such group
  // True if optimizers assemble matrices from all their shards (ShardGroups::shard_and_tensor).
  bool joins_matrices = false;
};

// Properties of a model that context and tensor parallelism need. Parameters themselves say how a
// layer is sharded over tensor ranks (Parameter::split).
struct ModelPlan {
  // true: between layers, a rank has whole samples, for models that need them there. The size of a
  // micro-batch is then a multiple of the number of tensor ranks. false: a rank has slices of rows.
  bool has_whole_samples = false;
  int64_t tokens = 0;     // tokens per sequence; 0: the model has no sequences that can be sharded
  int64_t key_heads = 1;  // key heads of layers that attend over sequences, before sharding
};

// Mesh of a training run: process groups, the mesh ranks in this process, and the exchanges between
// their models. Throws ConfigError that names fields of Degrees.
class Parallel {
 public:
  // Collective over `all`. `all` and `context` must outlive this object.
  Parallel(ProcessGroup& all, Context& context, const Degrees& degrees,
           const ParallelOptions& options = {});
  ~Parallel();
  Parallel(const Parallel&) = delete;
  Parallel& operator=(const Parallel&) = delete;

  // the constructor's degrees; a `shard` of 0 is replaced by its value
  const Degrees& degrees() const { return degrees_; }
  // Mesh of processes, with the axes "replica", "pipeline", "shard", "context", "tensor".
  Mesh& mesh() { return mesh_; }
  Context& context() { return context_; }
  // data_ranks(): number of data-parallel ranks, each with its own samples. data_rank(): this one's
  // index.
  int data_ranks() const { return degrees_.replica * degrees_.shard; }
  int data_rank() const;
  // Mesh ranks in this process. Must outlive all use of their models.
  HostedRanks& hosted() { return hosted_; }
  // Groups for DataParallel, complete after cut().
  const ShardGroups& groups() const { return groups_; }

  // Reduces each model to its mesh rank's shard of layers, sequences and experts. models: one for
  // each rank of hosted(), identical, without memory; they must outlive this object. Afterwards all
  // tensor and context ranks take batches of the same samples, and compute the same losses; context
  // ranks take only their own tokens (sequence_parts()). Only attention of nn/ may let tokens
  // interact. Throws CommError if the models of processes differ. Collective.
  void cut(const std::vector<Module*>& models, const ModelPlan& plan);
  template <typename Model>
  void cut(const std::vector<std::unique_ptr<Model>>& models, const ModelPlan& plan) {
    std::vector<Module*> all;
    for (const auto& model : models) all.push_back(model.get());
    cut(all, plan);
  }
  // Makes one model for each rank of hosted() and calls cut().
  template <typename Model>
  std::vector<std::unique_ptr<Model>> build(const ModelPlan& plan,
                                            const std::function<std::unique_ptr<Model>()>& make) {
    std::vector<std::unique_ptr<Model>> models;
    for (int rank = 0; rank < hosted_.count(); ++rank) models.push_back(make());
    cut(models, plan);
    return models;
  }
  // Makes pipeline stages from the first model's pieces. Call it after cut(). Collective.
  void stage(std::span<const nn::Piece> pieces, const StagePlan& plan, bool shards_states);

  // True if batches have shards of sequences. sequence_parts() describes the shards of all context
  // ranks in this process.
  bool cuts_sequences() const { return !sequences_.empty(); }
  SequenceParts sequence_parts() const;
  // Returns the part of a batch field that belongs to the current mesh rank. field: [n B, ...],
  // with the sequence shards of all n context ranks in this process. Returns a view of [B, ...], or
  // `field` itself if it is undefined.
  Tensor own_rows(const Tensor& field) const;
  // Copies token ids to the device. tokens: whole sequences, [sequences, T], in host memory. Copies
  // the current mesh rank's shard of them, i32 [sequences, own_tokens()], or all of them if
  // sequences are not sharded. `padding` fills the end of sharded sequences: -1 for targets, which
  // losses ignore. Throws ShapeError if sharded sequences do not have ModelPlan::tokens tokens.
  Tensor own_part(std::span<const int32_t> tokens, int64_t sequences, int32_t padding = 0) const;
  // Number of tokens that a mesh rank has of a sequence of ModelPlan::tokens, after cut().
  int64_t own_tokens() const;
  // Process groups in which layers communicate, for reports; null: no such group.
  ProcessGroup* layers() const { return layers_.get(); }
  ProcessGroup* tokens() const { return tokens_.get(); }
  ProcessGroup* rows() const { return rows_.get(); }

 private:
  // Position of a mesh rank in a MeshLine.
  struct Place {
    std::shared_ptr<MeshLine> line;
    int member = 0;
  };
  // Positions of each mesh rank in this process. Only kUlyssesRing uses `heads` and `ring`.
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
  std::unique_ptr<Mesh> reshard_;    // mesh with axes "outer" and "inner"; null: no reshard group
  std::unique_ptr<Mesh> expert_;     // mesh with axes "same" (experts) and "expert"
  // Groups for collectives of layers. They are in Lane::kModel, so they do not wait for queued
  // gradients.
  std::shared_ptr<ProcessGroup> layers_, tokens_, rows_;
  std::vector<std::unique_ptr<Exchange>> tensor_;        // one for each mesh rank in this process
  std::vector<std::unique_ptr<CutSequence>> sequences_;  // one for each mesh rank in this process
  std::unique_ptr<ExpertExchange> experts_;
  std::vector<std::unique_ptr<MeshDistribution>> distributions_;  // one for each mesh rank here
  std::unique_ptr<HostedModels> models_;
  std::unique_ptr<StageGroups> stages_;
};

}  // namespace shale::comm
