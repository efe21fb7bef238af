#pragma once

#include <map>
#include <string>
#include <vector>

#include "shale/kernels/adafactor.h"
#include "shale/runtime/optim/optimizer.h"

namespace shale::optim {

// Options of Adafactor, with the names in arXiv:1804.04235.
struct AdafactorOptions {
  float eps = 1e-30f;           // added to squared gradients
  float clip_rms = 1;           // limit of the RMS of a parameter's update
  double decay_exponent = 0.8;  // in the mean, the gradient of step t has weight t^-decay_exponent
  float weight_decay = 0;       // decoupled weight decay, as in AdamW
};

// Adafactor (arXiv:1804.04235, algorithm 4) without momentum, with the learning rate of the
// schedule. For a matrix it keeps one mean squared gradient per row and one per column; all
// dimensions but the last are rows. For other parameters it keeps one per element. Together they
// need a few bytes per thousand parameters.
//
// Statistics cover whole parameters. So ranks sum the statistics of their shards (ShardPeers), and
// steps are then collective. The order of the sum depends on the sharding, so results are bitwise
// equal only for the same number of sharding ranks. The tensor-parallel shards of a parameter
// (Parameter::peers) have separate statistics, which are summed in rank order, whichever process
// hosts them. Throws ConfigError for a shard with a fence (runtime/offload), for shards with
// different peers, for shards that were clipped separately, and if some parts of a parameter are
// neither on this rank nor at its peers.
class Adafactor : public Optimizer {
 public:
  Adafactor(std::vector<OptimShard> shards, const AdafactorOptions& options);

  bool needs_all_gradients() const override { return true; }
  void begin_step() override;

 private:
  void update(size_t shard, const Tensor& compute) override;
  std::vector<StatePart> own_state_parts() const override;
  void set_corrections(StepState& values, int64_t done) const override;
  // A whole parameter. Each rank holds a part of it.
  struct Whole {
    size_t first_part = 0;
    int64_t rows = 1, cols = 1, ranks = 1;
    bool factored = false;
    double used = 1;            // fraction of the elements that is not padding
    bool cuts_columns = false;  // true: tensor-parallel ranks shard the columns; false: the rows
    int64_t means_offset = 0;   // offset in means_ of the row means, which the column means follow
  };
  // Elements of a part that lie in one row-major matrix. The matrix is the whole parameter, or the
  // columns of it that a tensor-parallel rank holds.
  struct Piece {
    int64_t offset = 0, count = 0;  // range of elements in the part
    kernels::MatrixRange matrix{};
  };
  // The part of one parameter that one shard contains.
  struct Part {
    size_t shard = 0;
    OptimSpan span{};
    size_t whole = 0;
    std::vector<Piece> pieces = {};
    Tensor v{};  // mean square of each element; undefined if Whole::factored
  };
  void add_part(size_t shard, const OptimSpan& span);
  size_t whole_of(const Parameter& parameter);
  View row(const Tensor& means, const Part& part) const;
  View col(const Tensor& means, const Part& part) const;
  View square(const Part& part) const;
  bool counts(const Part& part) const;
  View grad(const Part& part, const Piece& piece) const;
  // Returns the section that belongs to the part's tensor-parallel rank. `all` has one section per
  // such rank.
  Tensor of_rank(const Tensor& all, const Part& part) const;
  void add_leaves();

  AdafactorOptions options_;
  const ShardPeers* peers_;
  std::vector<Part> parts_;
  std::vector<Whole> wholes_;
  std::map<std::string, size_t> numbers_;  // parameter name -> index in wholes_
  int64_t ranks_ = 1;                      // maximum number of tensor-parallel ranks of a parameter
  Tensor means_;                           // row means and column means of all matrices
  Tensor newest_;  // [tensor-parallel ranks, means]: means of each rank for this step's gradient
  // [tensor-parallel ranks, parameters + 1]: sums of squares of updates. The last column is
  // discarded.
  Tensor squares_;
  Tensor newest_sum_, squares_sum_;  // newest_ and squares_, summed over the tensor-parallel ranks
};

}  // namespace shale::optim
