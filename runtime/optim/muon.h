#pragma once

#include <functional>
#include <vector>

#include "shale/runtime/optim/newton_schulz.h"
#include "shale/runtime/optim/optimizer.h"

namespace shale::optim {

// What the step of a matrix [out, in] is multiplied with.
enum class MuonScale {
  kMatchRmsAdamW,  // 0.2 sqrt(max(out, in)) (arXiv:2502.16982, equation 4): AdamW's rate and decay
  kOriginal,       // sqrt(max(1, out / in)) (kellerjordan.github.io/posts/muon): rates near 0.02
  kSpectral,       // sqrt(out / in) (arXiv:2409.20325)
};

// Of Muon below.
struct MuonOptions {
  float momentum = 0.95f;
  bool nesterov = true;
  float eps = 1e-7f;          // added to the norm of a matrix
  float weight_decay = 0.1f;  // decoupled; as AdamW's, and of the unscaled rate
  MuonScale scale = MuonScale::kMatchRmsAdamW;
  NewtonSchulz method = muon_polynomials();
  // Of the parameters that are matrices, or have one for each of their first dimension (experts),
  // those that are orthogonalized; null: all of two or three dimensions.
  // Embeddings and the last layer are better left to AdamW.
  std::function<bool(const Parameter&)> matrices = {};
  AdamWOptions adamw = {};  // of all other parameters, with moments in f32; its decay is the above
};

// Muon (kellerjordan.github.io/posts/muon): the momentum of a matrix, orthogonalized, in place of
// the gradient; AdamW for parameters that are no such matrices. Parameter::matrices of a parameter
// are orthogonalized apart. Momentum is in f32; products are in bf16.
//
// Sharded, a matrix has an owner among the ranks that have its parts (OptimShard::peers), to whom
// they send their parts of the update in bf16, and from whom they get it orthogonalized, so that
// the bits are those of one rank, also of a model whose layers are cut, whose shards are put
// together. Matrices are dealt out by their cost, the largest first. While one is computed, those
// before and after it travel. Steps are collective then. Without peers every rank has all matrices.
// Experts that ranks have whole are orthogonalized where they are.
// Small ones of one shape are computed together (wants_batches()).
//
// Shards in host memory (runtime/offload) have their momentum there; their matrices are computed on
// the device, where a round of them is at a time.
//
// Throws ConfigError as Adafactor does: for shards that are cut over different ranks or were
// clipped apart, and for a part without peers; for moments of AdamW other than f32.
class Muon : public Optimizer {
 public:
  Muon(std::vector<OptimShard> shards, const MuonOptions& options);

  bool needs_all_gradients() const override { return true; }
  void begin_step() override;

  // A matrix inside a parameter, and who computes it.
  struct Matrix {
    const Parameter* parameter = nullptr;  // or the first of its tensor ranks here
    int64_t first = 0;                     // its first element in the whole parameter
    int64_t rows = 0, cols = 0;
    int owner = 0;         // a rank of the peers
    double flops() const;  // of a step of the iteration, but for a factor
  };
  // In the order in which they were dealt out, the same on all ranks; then this rank's experts
  // that are whole.
  std::vector<Matrix> matrices() const;

 private:
  void update(size_t shard, const Tensor& compute) override;
  std::vector<StatePart> own_state_parts() const override;
  void set_corrections(StepState& values, int64_t done) const override;
  // What a rank has of a parameter: elements [first, first + count) of a tensor rank.
  struct Range {
    int64_t first = 0, count = 0;
    int tensor_rank = 0;
  };
  // A parameter's part in a shard, and its state.
  struct Part {
    size_t shard = 0;
    OptimSpan span{};
    bool is_matrix = false;
    float scale = 1;
    Tensor m{}, v{};  // v of AdamW alone
    Tensor update{};  // of a matrix's part, during a step; bf16
  };
  struct Job {
    std::vector<size_t> parts = {};  // of parts_, one for each tensor rank
    Matrix matrix{};
    int64_t numel() const { return matrix.rows * matrix.cols; }
  };
  // What a rank has of a job, as PartRows of one of parts_ in its matrix.
  struct Piece {
    size_t part = 0;
    PartRows rows{};
    int64_t numel() const { return rows.rows * rows.run; }
  };
  // Jobs of one rank that are done at once: one, or small ones of one shape.
  using Batch = std::vector<const Job*>;
  // What is under way together, by rank.
  using Round = std::vector<Batch>;
  // A round's way: parts of jobs come together here, and go back.
  struct Trip {
    Tensor mine, whole;                              // by rank, of each batch in order
    std::vector<int64_t> part_counts, whole_counts;  // by rank: of others' jobs, of this one's
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
  std::vector<std::vector<Range>> ranges_;  // by rank, then by part
  std::vector<Job> jobs_, own_jobs_;        // dealt out; of experts that every rank has whole
  std::vector<Round> rounds_;
  std::vector<Batch> own_batches_;
};

}  // namespace shale::optim
