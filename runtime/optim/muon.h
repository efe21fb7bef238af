#pragma once

#include <functional>
#include <vector>

#include "shale/runtime/optim/newton_schulz.h"
#include "shale/runtime/optim/optimizer.h"

namespace shale::optim {

// Scale factor of the step of a matrix [out, in].
enum class MuonScale {
  kMatchRmsAdamW,  // 0.2 sqrt(max(out, in)) (arXiv:2502.16982, eq. 4): use AdamW's lr and decay
  kOriginal,       // sqrt(max(1, out / in)) (kellerjordan.github.io/posts/muon): use lr near 0.02
  kSpectral,       // sqrt(out / in) (arXiv:2409.20325)
};

// Options of Muon below.
struct MuonOptions {
  float momentum = 0.95f;
  bool nesterov = true;
  float eps = 1e-7f;          // added to a matrix's norm
  float weight_decay = 0.1f;  // decoupled, as in AdamW, relative to the unscaled rate
  MuonScale scale = MuonScale::kMatchRmsAdamW;
  NewtonSchulz method = muon_polynomials();
  // Selects the parameters to orthogonalize, among those that are matrices or have one matrix per
  // index of their first dimension (experts); null: all with two or three dimensions. AdamW is
  // usually better for embeddings and the last layer.
  std::function<bool(const Parameter&)> matrices = {};
  // Options for all other parameters. Moments must be f32; weight_decay above applies.
  AdamWOptions adamw = {};
};

// Muon (kellerjordan.github.io/posts/muon): steps a matrix by its orthogonalized momentum instead
// of its gradient. Other parameters use AdamW. A fused parameter's Parameter::matrices matrices are
// orthogonalized separately. Momentum is f32; GEMMs are bf16.
//
// A sharded matrix has an owner among the ranks that hold its parts (OptimShard::peers). These
// ranks send their parts of the update to the owner in bf16, and receive the orthogonalized parts.
// Results are bitwise those of one rank, also with tensor parallelism, whose shards are put
// together. Matrices are assigned by cost, largest first. Transfers of other matrices overlap with
// the computation. Steps are then collective. Without peers every rank has all matrices. Experts
// that a rank holds whole are orthogonalized there. Small matrices of one shape are processed as a
// batch (wants_batches()).
//
// With shards in host memory (runtime/offload) the momentum is there; matrices are computed on the
// device, which holds one round of them at a time.
//
// Throws ConfigError as Adafactor does: for shards with different peers, for shards clipped
// separately, and for a part without peers. Also throws for AdamW moments other than f32.
class Muon : public Optimizer {
 public:
  Muon(std::vector<OptimShard> shards, const MuonOptions& options);

  bool needs_all_gradients() const override { return true; }
  void begin_step() override;

  // A matrix within a parameter, and the rank that computes it.
  struct Matrix {
    const Parameter* parameter = nullptr;  // or its first tensor-parallel shard on this process
    int64_t first = 0;  // index of the matrix's first element in the whole parameter
    int64_t rows = 0, cols = 0;
    int owner = 0;         // rank within the peers
    double flops() const;  // FLOP of one iteration step, up to a constant factor
  };
  // Matrices in the order of assignment, equal on all ranks, followed by this rank's whole experts.
  std::vector<Matrix> matrices() const;

 private:
  void update(size_t shard, const Tensor& compute) override;
  std::vector<StatePart> own_state_parts() const override;
  void set_corrections(StepState& values, int64_t done) const override;
  // Range of a parameter on a rank: elements [first, first + count) of a tensor-parallel shard.
  struct Range {
    int64_t first = 0, count = 0;
    int tensor_rank = 0;
  };
  // The part of a parameter in a shard, and its state.
  struct Part {
    size_t shard = 0;
    OptimSpan span{};
    bool is_matrix = false;
    float scale = 1;
    Tensor m{}, v{};  // v is only for AdamW
    Tensor update{};  // bf16: update of a matrix during a step
  };
  struct Job {
    std::vector<size_t> parts = {};  // indices in parts_, one per tensor-parallel rank
    Matrix matrix{};
    int64_t numel() const { return matrix.rows * matrix.cols; }
  };
  // Part of a job's matrix on one rank: rows of one of parts_, with their position in the matrix.
  struct Piece {
    size_t part = 0;
    PartRows rows{};
    int64_t numel() const { return rows.rows * rows.run; }
  };
  // Jobs of one rank that are processed together: a single job, or small jobs of one shape.
  using Batch = std::vector<const Job*>;
  // Batches that are processed at the same time, by rank.
  using Round = std::vector<Batch>;
  // Buffers and transfers of a round: collect the parts of jobs at their owners and send them back.
  struct Trip {
    // Ordered by rank, then by batch: this rank's parts, and the matrices that it owns.
    Tensor mine, whole;
    // By rank: number of elements of other ranks' jobs sent, and of this rank's jobs received.
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
  std::vector<std::vector<Range>> ranges_;  // ranges by rank, then by part
  std::vector<Job> jobs_, own_jobs_;        // jobs of all ranks; whole experts of this rank
  std::vector<Round> rounds_;
  std::vector<Batch> own_batches_;
};

}  // namespace shale::optim
