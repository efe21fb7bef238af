#pragma once

#include <functional>
#include <vector>

#include "shale/runtime/optim/newton_schulz.h"
#include "shale/runtime/optim/optimizer.h"

namespace shale::optim {

// Factor by which the step of a matrix [out, in] is scaled.
enum class MuonScale {
  kMatchRmsAdamW,  // 0.2 sqrt(max(out, in)) (arXiv:2502.16982, eq. 4): use AdamW's lr and decay
  kOriginal,       // sqrt(max(1, out / in)) (kellerjordan.github.io/posts/muon): use lr near 0.02
  kSpectral,       // sqrt(out / in) (arXiv:2409.20325)
};

// Options of Muon.
struct MuonOptions {
  float momentum = 0.95f;
  bool nesterov = true;
  float eps = 1e-7f;          // added to a matrix's norm
  // decoupled weight decay as in AdamW, relative to the unscaled learning rate
  float weight_decay = 0.1f;
  MuonScale scale = MuonScale::kMatchRmsAdamW;
  NewtonSchulz method = muon_polynomials();
  // Returns true for parameters to orthogonalize. It is asked about parameters with two dimensions
  // (one matrix) and with three (one matrix per index of the first dimension, as for experts).
  // Null: all of them. AdamW is usually better for embeddings and the last layer.
  std::function<bool(const Parameter&)> matrices = {};
  // Options for all other parameters, which AdamW steps. Moments must be f32.
  // MuonOptions::weight_decay replaces its weight_decay.
  AdamWOptions adamw = {};
};

// Muon (kellerjordan.github.io/posts/muon): steps a matrix by its orthogonalized momentum instead
// of its gradient. Other parameters use AdamW. If a parameter consists of several matrices
// (Parameter::matrices), each is orthogonalized separately. Momentum is f32; GEMMs are bf16.
//
// A sharded matrix has an owner among the ranks that hold its parts (OptimShard::peers). These
// ranks send their parts of the update to the owner in bf16, and receive the orthogonalized parts.
// Results are bitwise those of one rank, also with tensor parallelism, because the owner assembles
// the whole matrix. Matrices are assigned to owners by cost, largest first. Transfers overlap with
// the computation of other matrices. Steps are then collective. Without peers every rank has all
// matrices. Experts that a rank holds whole are orthogonalized there. Small matrices of one shape
// are processed as a batch (wants_batches()).
//
// If shards are in host memory (runtime/offload), so is the momentum. Matrices are computed on the
// device, which holds one round of them at a time.
//
// Throws ConfigError for shards with different peers, for shards that were clipped separately, and
// if some parts of a parameter are neither on this rank nor at its peers. Also throws for AdamW
// moments other than f32.
class Muon : public Optimizer {
 public:
  Muon(std::vector<OptimShard> shards, const MuonOptions& options);

  bool needs_all_gradients() const override { return true; }
  void begin_step() override;

  // A matrix within a parameter, and the rank that orthogonalizes it.
  struct Matrix {
    // parameter that contains the matrix; with tensor parallelism, its first shard on this process
    const Parameter* parameter = nullptr;
    int64_t first = 0;  // index of the matrix's first element in the whole parameter
    int64_t rows = 0, cols = 0;
    int owner = 0;         // index of the owner among the peers
    double flops() const;  // FLOP of one Newton-Schulz step, up to a constant factor
  };
  // Returns all matrices in the order in which they were assigned to owners; this order is equal on
  // all ranks. The whole experts of this rank follow.
  std::vector<Matrix> matrices() const;

 private:
  void update(size_t shard, const Tensor& compute) override;
  std::vector<StatePart> own_state_parts() const override;
  void set_corrections(StepState& values, int64_t done) const override;
  // Elements of a parameter that one rank holds: [first, first + count) of the shard of
  // tensor-parallel rank tensor_rank.
  struct Range {
    int64_t first = 0, count = 0;
    int tensor_rank = 0;
  };
  // The part of one parameter that one shard contains, and its optimizer state.
  struct Part {
    size_t shard = 0;
    OptimSpan span{};
    bool is_matrix = false;
    float scale = 1;
    Tensor m{}, v{};  // momentum or first moment; second moment, only for AdamW
    Tensor update{};  // bf16: update of a matrix while a step runs
  };
  struct Job {
    std::vector<size_t> parts = {};  // indices in parts_, one for each tensor-parallel rank
    Matrix matrix{};
    int64_t numel() const { return matrix.rows * matrix.cols; }
  };
  // The part of a job's matrix that one rank holds in one of parts_: rows, with their position in
  // the matrix.
  struct Piece {
    size_t part = 0;
    PartRows rows{};
    int64_t numel() const { return rows.rows * rows.run; }
  };
  // Jobs of one rank that are processed together. They are a single job, or several small jobs of
  // one shape.
  using Batch = std::vector<const Job*>;
  // One batch per rank; all ranks process their batches at the same time.
  using Round = std::vector<Batch>;
  // Buffers and transfers of a round. The parts of each job's matrix are sent to its owner, and
  // later back.
  struct Trip {
    // mine: this rank's parts of all matrices, sorted by owner. whole: all parts of the matrices
    // that this rank owns, sorted by the rank that sent them.
    Tensor mine, whole;
    // For each rank r, part_counts is the number of elements of r's matrices that this rank sends.
    // whole_counts is the number of elements of this rank's matrices that r sends.
    std::vector<int64_t> part_counts, whole_counts;
    std::function<void()> wait = {};
  };

  void add_part(size_t shard, const OptimSpan& span);
  bool has_own_experts(size_t part) const;
  void add_jobs(const std::vector<size_t>& parts);
  bool joins(const Batch& batch, const Job& job) const;
  void deal();
  void add_to_rounds(const Job& job);
  void gather_ranges();
  std::vector<Piece> pieces_of(const Job& job, int rank) const;
  int64_t count_of(const Job& job, int rank) const;
  bool is_in_order(const Job& job) const;
  Tensor slice_of(const Piece& piece) const;
  Context& device() const;
  void copy(const Tensor& from, const Tensor& to) const;
  void arrange(const Tensor& pieces, const Piece& piece, const Tensor& matrix, bool back) const;
  void queue_momentum();
  void orthogonalize_batch(const Batch& batch, const Tensor& x) const;
  void orthogonalize_alone(const Batch& batch);
  void orthogonalize_by_rounds();
  void for_each_part(const Round& round, const Trip& trip,
                     const std::function<void(const Tensor&, const Tensor&)>& visit) const;
  Trip send(const Round& round);
  void compute(const Round& round, Trip& trip);
  void receive(const Round& round, Trip& trip);
  int rank() const { return peers_ != nullptr ? peers_->rank : 0; }
  int ranks() const { return peers_ != nullptr ? peers_->size : 1; }

  MuonOptions options_;
  const ShardPeers* peers_;
  std::vector<Part> parts_;
  std::vector<std::vector<Range>> ranges_;  // ranges_[rank][part], where part is an index in parts_
  // jobs_ of all ranks; own_jobs_ for experts that this rank holds whole
  std::vector<Job> jobs_, own_jobs_;
  std::vector<Round> rounds_;
  std::vector<Batch> own_batches_;
};

}  // namespace shale::optim
