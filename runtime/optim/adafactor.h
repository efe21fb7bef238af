#pragma once

#include <map>
#include <string>
#include <vector>

#include "shale/kernels/adafactor.h"
#include "shale/runtime/optim/optimizer.h"

namespace shale::optim {

// Options of Adafactor, named as in the paper below.
struct AdafactorOptions {
  float eps = 1e-30f;           // added to squared gradients
  float clip_rms = 1;           // limit of the RMS of a parameter's update
  double decay_exponent = 0.8;  // the newest gradient has weight t^-decay_exponent in the means
  float weight_decay = 0;       // decoupled, as in AdamW
};

// Adafactor (arXiv:1804.04235, algorithm 4) without momentum and with the schedule's learning rate.
// It keeps a mean squared gradient per row and per column of a matrix (all dimensions but the last
// are rows), and per element of other parameters: a few bytes per thousand parameters.
//
// Its statistics cover whole parameters, so ranks sum the statistics of their shards (ShardPeers;
// steps are then collective), in an order that depends on the sharding. Results are therefore
// bitwise equal only for the same number of sharding ranks. Statistics of tensor-parallel shards of
// a parameter (Parameter::peers) are kept separate and summed in rank order, independent of which
// process hosts them. Throws ConfigError for a shard with a fence (runtime/offload), for shards
// with different peers, for shards that were clipped separately, and for a part of a parameter
// whose other parts are neither here nor at the peers.
class Adafactor : public Optimizer {
 public:
  Adafactor(std::vector<OptimShard> shards, const AdafactorOptions& options);

  bool needs_all_gradients() const override { return true; }
  void begin_step() override;

 private:
  void update(size_t shard, const Tensor& compute) override;
  std::vector<StatePart> own_state_parts() const override;
  void set_corrections(StepState& values, int64_t done) const override;
  // A whole parameter, of which ranks hold parts.
  struct Whole {
    size_t first_part = 0;
    int64_t rows = 1, cols = 1, ranks = 1;
    bool factored = false;
    double used = 1;            // fraction of the elements that is not padding
    bool cuts_columns = false;  // tensor-parallel ranks shard the columns, else the rows
    int64_t means_offset = 0;   // offset in means_ of the row means, then column means
  };
  // Elements of a part that lie in one row-major matrix: the whole parameter, or a tensor-parallel
  // rank's columns of it.
  struct Piece {
    int64_t offset = 0, count = 0;  // range of elements in the part
    kernels::MatrixRange matrix{};
  };
  // The part of a parameter in a shard.
  struct Part {
    size_t shard = 0;
    OptimSpan span{};
    size_t whole = 0;
    std::vector<Piece> pieces = {};
    Tensor v{};  // mean squares per element; undefined if factored
  };
  void add_part(size_t shard, const OptimSpan& span);
  size_t whole_of(const Parameter& parameter);
  View row(const Tensor& means, const Part& part) const;
  View col(const Tensor& means, const Part& part) const;
  View square(const Part& part) const;
  bool counts(const Part& part) const;
  View grad(const Part& part, const Piece& piece) const;
  // View of a tensor-parallel rank's section in a tensor that has a section for each such rank.
  Tensor of_rank(const Tensor& all, const Part& part) const;
  void add_leaves();

  AdafactorOptions options_;
  const ShardPeers* peers_;
  std::vector<Part> parts_;
  std::vector<Whole> wholes_;
  std::map<std::string, size_t> numbers_;  // index in wholes_ by parameter name
  int64_t ranks_ = 1;                      // maximum number of tensor-parallel ranks of a parameter
  Tensor means_;                           // means of all matrices
  Tensor newest_;  // [tensor-parallel ranks, means]: means of this step's gradient per such rank
  // [tensor-parallel ranks, wholes + 1]: sums of squares of updates; the last column is
  // discarded.
  Tensor squares_;
  Tensor newest_sum_, squares_sum_;  // summed over the tensor-parallel ranks
};

}  // namespace shale::optim
